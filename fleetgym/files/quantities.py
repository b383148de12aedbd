"""Define the numbers that files and options hold: each kind with its unit and two bounds, here alone.

Bounds are generous for real use, and such that no product of numbers within them comes near the end of floating point:
what a window may cost stays below `COST_USD`. `docs/inputs.md` lists which field is of which kind.
"""

from __future__ import annotations

from fleetgym.files.schema import Integer, Number

#: Parts of one.
SHARE = Number(0.0, 1.0)
POSITIVE_SHARE = Number(1e-9, 1.0)
PERCENTILE = Number(1.0, 99.99)

#: Time.
SLO_S = Number(1e-6, 1e7, "s")
WINDOW_S = Number(1e-3, 86400.0, "s")  # a day at most
LIMIT_S = Number(1e-3, 1e9, "s")  # what something may take
TAKEN_S = Number(0.0, 1e9, "s")  # what something took

#: Demand.
NOMINAL_RPS = Number(1e-9, 1e6, "requests/s")
RATE_RPS = Number(0.0, 1e6, "requests/s")
TOKENS = Number(1e-3, 1e7, "tokens")
CV2 = Number(0.0, 1e6)  # a squared coefficient of variation
LENGTH_FACTOR = Number(0.0, 1e6)  # times the mean length of a request
FACTOR = Number(1e-4, 1e4)
PRICE_FACTOR = Number(0.0, 1e4)
SCALE = Number(1e-6, 1e6)  # multiplies the demand of a trace
PENALTY = Number(1e-3, 1e6)  # times the rent that serves a request
GROWTH = Number(1e-3, 1e3)  # times nominal demand
MARGIN = Number(-0.99, 1e3)  # plan for 1 + this times demand

#: Random processes.
LOG_SD = Number(0.0, 10.0)  # a standard deviation or an amplitude of logarithms
TIME_MIN = Number(1e-3, 1e5, "minutes")
PER_DAY = Number(0.0, 288.0, "a day")
DISPERSION = Number(1.0, 1e6)
ROLL_WINDOWS = Number(0.0, 2016.0, "windows")
PARAMETER = Number(-1e7, 1e7)  # of any process; each says more exactly which

#: Hardware.
TFLOPS = Number(0.0, 1e9, "TFLOP/s")
PER_REQUEST = Number(0.0, 1e7)  # seconds or TFLOP
PER_TOKEN = Number(0.0, 1e4)  # seconds or TFLOP
GB = Number(0.0, 1e9, "GB")
GB_PER_TOKEN = Number(0.0, 1e3, "GB/token")
MEMORY_GB = Number(1e-3, 1e6, "GB")
GB_PER_S = Number(1e-3, 1e6, "GB/s")
LINK_GB_PER_S = Number(0.0, 1e6, "GB/s")  # 0 where there is none
PEAK_TFLOPS = Number(1e-3, 1e6, "TFLOP/s")
WATTS = Number(1.0, 1e5, "W")
PARAMS_B = Number(1e-6, 1e6, "billion parameters")
KV_BYTES = Number(1e-3, 1e9, "bytes/token")
SPEED = Number(1e-3, 1e3)  # reference CPU seconds per CPU second
SPREAD = Number(0.0, 1e6)
DRIFT = Number(-0.999999, 1e6)  # speed relative to another, minus 1

#: Money.
USD_PER_GPU_H = Number(0.0, 1e6, "USD/h")
USD_PER_H = Number(0.0, 1e6, "USD/h")
USD_PER_S = Number(0.0, 1e9, "USD/s")
FEE_USD = Number(0.0, 1e9, "USD")
PENALTY_USD = Number(1e-12, 1e9, "USD")
BUDGET_USD = Number(1e-6, 1e15, "USD")
COST_USD = Number(0.0, 1e60, "USD")  # computed
POSITIVE_COST_USD = Number(1e-60, 1e60, "USD")

#: Whole numbers.
SEED = Integer(0, 2**63 - 1)
NUMBER = Integer()  # how many, or which: from 0
COUNT = Integer(1)  # how many, at least one
PREFIX_CACHE = Integer(512, 10**12)  # tokens
INSTANCES = Integer(1, 10_000)  # to make
STORED = Integer(1, 100)  # days of an instance
CONTEXT = Integer(1, 10**8)  # tokens of a request
BUCKETS = Integer(1, 64)  # of lengths
DAYS = Integer(0, 10_000)  # to draw
REPLICATIONS = Integer(2, 1_000_000)
ROUNDS = Integer(1, 1000)
WORKERS = Integer(1, 1024)  # processes
GPU_CAP = Integer(1, 100_000)
GPUS_PER_NODE = Integer(1, 1024)
TERM_DAYS = Integer(1, 3660)
PARALLEL = Integer(1, 1024)  # GPUs that share a replica
LAYERS = Integer(1, 10_000)
WIDTH = Integer(1, 10**7)  # of a layer, heads, or numbers of a head
EXPERTS = Integer(0, 10**5)  # 0: dense
