"""Write docs/environments: a page for each registered environment and one for the wrappers, from their docstrings.

``python -m tools.build_env_docs`` writes; with ``--check`` it only says which pages are not current, and fails.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import gymnasium

import fleetgym
from fleetgym.cli.process import run_program
from fleetgym.envs import wrappers
from fleetgym.files.markdown import table
from fleetgym.runtime.programs import program

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "environments"

#: Headings that every environment's docstring has, in this order: Gymnasium's template.
SECTIONS = (
    "Description",
    "Action space",
    "Observation space",
    "Rewards",
    "Starting state",
    "Episode end",
    "Info",
    "Arguments",
    "Vectorized use",
    "Version history",
)
#: The environment whose page the others refer to.
FIRST = "FleetAlloc-v0"

_NOTE = "<!-- Made by tools/build_env_docs.py from the docstring; edit that. -->"


def environment_ids() -> list[str]:
    """Return the ids that fleetgym registers, sorted."""
    assert fleetgym.__version__  # importing the package registers them
    return sorted(
        name for name, spec in gymnasium.registry.items() if str(spec.entry_point).startswith("fleetgym.")
    )


def environment_page(env_id: str) -> str:
    """Return the page of one environment.

    Raises
    ------
    ValueError
        If the docstring's headings are not those of the template.
    """
    env = gymnasium.make(env_id)
    kind = type(env.unwrapped)
    text = inspect.getdoc(kind) or ""
    headings = tuple(re.findall(r"^## (.+)$", text, flags=re.MULTILINE))
    if headings != SECTIONS:
        raise ValueError(f"{kind.__name__}: expected the headings {SECTIONS}, got {headings}")
    summary, _, body = text.partition("\n\n")
    if env_id != FIRST:
        body = _without_what_is_equal(body, inspect.getdoc(type(gymnasium.make(FIRST).unwrapped)) or "")
    slots = env.action_space.nvec.size  # type: ignore[attr-defined]
    facts = [
        ("Action space", f"`MultiDiscrete`, {slots} components on the default instance"),
        ("Observation space", f"`Dict` of {len(env.observation_space)} boxes"),
        ("Import", f'`gymnasium.make("fleetgym:{env_id}")`'),
        ("Render modes", ", ".join(f"`{mode}`" for mode in env.metadata["render_modes"])),
        ("Source", f"`{kind.__module__}.{kind.__name__}`"),
    ]
    parts = (f"# {env_id}", _NOTE, _one_line(summary), table(("", ""), facts, 2).rstrip(), _markdown(body))
    return "\n\n".join(parts) + "\n"


def _without_what_is_equal(body: str, first: str) -> str:
    """Return a docstring's sections, with links to the first environment's in place of text that both have."""
    parts = re.split(r"^(## .+)$", body, flags=re.MULTILINE)
    known = re.split(r"^(## .+)$", first, flags=re.MULTILINE)
    told = dict(zip(known[1::2], known[2::2], strict=True))
    for k in range(1, len(parts), 2):
        same = told[parts[k]].strip()
        if parts[k + 1].strip().startswith(same):
            anchor = parts[k].removeprefix("## ").lower().replace(" ", "-")
            link = f"As in [`{FIRST}`]({file_name(FIRST)}#{anchor})."
            parts[k + 1] = parts[k + 1].replace(same, link)
    return "".join(parts)


def wrappers_page() -> str:
    """Return the page of the wrappers."""
    parts = ["# Wrappers for learning", _NOTE, _numpydoc(inspect.getdoc(wrappers) or "")]
    for name in wrappers.__all__:
        thing = getattr(wrappers, name)
        constructor = thing.__init__ if inspect.isclass(thing) else thing
        arguments = [
            str(parameter.replace(annotation=inspect.Parameter.empty))
            for parameter in inspect.signature(constructor).parameters.values()
            if parameter.name != "self"
        ]
        parts += [f"## {name}", f"`{name}({', '.join(arguments)})`", _numpydoc(inspect.getdoc(thing) or "")]
    return "\n\n".join(parts) + "\n"


def index_page(ids: list[str]) -> str:
    """Return the list of environments."""
    rows = []
    for env_id in ids:
        text = inspect.getdoc(type(gymnasium.make(env_id).unwrapped)) or ""
        rows.append((f"[`{env_id}`]({file_name(env_id)})", _one_line(text.partition("\n\n")[0])))
    more = "[Wrappers for learning](wrappers.md): margins as actions, features as observations, rewards near one."
    return "\n\n".join(("# Environments", _NOTE, table(("id", "what it is"), rows, 2).rstrip(), more)) + "\n"


def file_name(env_id: str) -> str:
    """Return the name of an environment's page, such as ``fleet-alloc-v0.md``."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", env_id.rpartition("/")[2]).lower() + ".md"


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _markdown(text: str) -> str:
    """Return text with double backquotes, which reStructuredText needs, made single, and pages linked."""
    text = re.sub(r"``(.+?)``", r"`\1`", text, flags=re.DOTALL)
    return re.sub(r"`docs/([\w-]+\.md)`", r"[`docs/\1`](../\1)", text)


def _numpydoc(text: str) -> str:
    """Return a numpydoc docstring as Markdown: sections in bold, parameters as a list, examples as code."""
    head, *rest = re.split(r"^(\w[\w ]*)\n-{3,}\n", text, flags=re.MULTILINE)
    parts = [_markdown(head.strip())]
    for title, body in zip(rest[::2], rest[1::2], strict=True):
        if title == "Examples":
            parts.append(f"```pycon\n{body.strip()}\n```")
            continue
        entries = re.findall(r"^(\S.*)\n((?:(?: +.*)?(?:\n|$))*)", body.strip(), flags=re.MULTILINE)
        parts.append(f"**{title}**")
        parts.append("\n".join(f"- `{name}`: {_one_line(_markdown(says))}" for name, says in entries))
    return "\n\n".join(parts)


def pages() -> dict[str, str]:
    """Return the text of every page by its file name."""
    ids = environment_ids()
    made = {file_name(env_id): environment_page(env_id) for env_id in ids}
    return {"README.md": index_page(ids), **made, "wrappers.md": wrappers_page()}


def smoke(folder: Path) -> int:
    """Write all pages elsewhere, and check them."""
    return main(["--out", str(folder)]) or main(["--out", str(folder), "--check"])


def main(arguments: list[str] | None = None) -> int:
    """Write the pages, or check them; return the exit code."""
    parser = program(__doc__, writes="The pages of docs/environments.", takes="Seconds.", smoke=smoke)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a page is not current")
    parser.add_argument(
        "--out", type=Path, default=FOLDER, help="folder of the pages (default: docs/environments)"
    )
    call = parser.parse_args(arguments)
    stale = 0
    for name, text in pages().items():
        path = call.out / name
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale += 1
        print(f"{path}: {'not current' if call.check else 'written'}")
        if not call.check:
            call.out.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return 1 if call.check and stale else 0


if __name__ == "__main__":
    run_program(main)
