"""The command line: `parser` reads the words, `verbs` call one public function each and print its answer."""

from fleetgym.cli.parser import main as main
