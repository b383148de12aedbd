"""Make the demand tables: tenants, an hour and a week of requests, and fits of demand, drops and token lengths."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd

from fleetgym.files.documents import canonical_json, write_atomically, write_json
from fleetgym.model.dynamics.weekly import basis
from fleetgym.model.processes import PROFILE

#: Tenants with known token lengths on all nine days; the rest of the table has gaps or a single day. m-mid/23 is
#: left out: its ten-minute counts are constant, so that one half of a window would give the other away.
TENANTS = {"m-large": (61, 143, 104, 34, 78, 20), "m-mid": (60, 101, 66, 30, 14)}
WINDOWS_10MIN = 144
#: A half window is never less dispersed than pooled chat traffic at the window scale.
MIN_DISPERSION = 1.5
#: Tenants of whose log demand the time of the day tells 97, 98 and 63 %.
REGULAR = (("m-mid", 66), ("m-mid", 30), ("m-mid", 101))
REASONING = ("deepseek-r1", 35)  # the client whose token lengths stand for a reasoning model's
#: What is read of the fits: of demand, and of drops of availability.
DEMAND_FITS = (
    "daily_amp_log",
    "ou_sd",
    "ou_time_min",
    "noise_sd",
    "jumps_gt_1p5x_per_day",
    "peak_to_mean",
    "sd_logret_10min",
)
DROP_FITS = (
    "rate_per_day",
    "depth_beta_a",
    "depth_beta_b",
    "dur_ln_mu_min",
    "dur_ln_sigma",
    "share_of_depth_in_first_window",
)
#: Correlation of the availability of spot pools, measured between zones: same region, other region.
TARGET_CORRELATION = (0.40, 0.18)


def make_up(folder: Path) -> None:
    """Write small source tables: tenants whose demand never changes, an empty hour, fits of ones."""
    times, days, slots = range(9 * WINDOWS_10MIN), range(9), range(288)
    clients = [(model, client) for model, numbers in TENANTS.items() for client in numbers]

    def table(columns: str, rows: list[tuple]) -> pd.DataFrame:
        return pd.DataFrame(rows, columns=columns.split())

    rates = [(*client, 600.0 * k, 0.1, 1.0) for client in clients for k in times]
    table("model client t_s rate_rps cv", rates).to_parquet(folder / "servegen_clients_top20.parquet")
    lengths = [(*client, d, w, 500.0, 100.0) for client in [*clients, REASONING] for d in days for w in slots]
    typed = table("model client day window mean_in mean_out", lengths)
    typed.to_parquet(folder / "demand_days_typed.parquet")
    arrivals = table("kind t_ms", [("azure_conv", 500.0 * k) for k in range(7200)])
    arrivals.to_parquet(folder / "requests_1h.parquet")
    csv = {
        "servegen_demand_10min.csv": table(
            "model t_s missing", [(m, 600.0 * k, 0) for m in TENANTS for k in times]
        ),
        "fit_clients.csv": table("model client robust_sd_10min", [(*clients[0], 0.1)]),
        "warped_hour_288.csv": table(
            "kind window requests context_tokens generated_tokens",
            [("azure_conv", w, 1, 1, 1) for w in slots],
        ),
        "azure_week_2024_digitised.csv": table(
            "kind start rate_rps lowest_rps highest_rps",
            [
                ("code", f"2024-05-{10 + k // 144} {k // 6 % 24:02d}:{k % 6}0", 5.0, 4.0, 6.0)
                for k in range(1008)
            ],
        ),
        "tokens_summary.csv": table(
            "kind field mean cv", [("chat", f, 9.0, 1.0) for f in ("context", "generated")]
        ),
    }
    for name, made in csv.items():
        made.to_csv(folder / name, index=False)
    write_json(folder / "fit_params_demand.json", {"demand": {"m-mid": dict.fromkeys(DEMAND_FITS, 1.0)}})
    write_json(folder / "fit_params_availability.json", {"16": dict.fromkeys(DROP_FITS, 1.0)})


def write_tables(folder: Path, out: Path) -> None:
    """Write every demand table."""
    write_json(out / "servegen_tenants.json.gz", tenants(folder))
    write_lines(out / "azure_hour.json", azure_hour(folder))
    write_lines(out / "azure_week.json", azure_week(folder))
    write_lines(out / "demand_fits.json", demand_fits(folder))


def write_lines(path: Path, data: dict) -> None:
    """Write a JSON object with one line per key, so that changes can be read."""
    lines = ",\n".join(f'"{key}":{canonical_json(data[key])}' for key in sorted(data))
    write_atomically(path, f"{{\n{lines}\n}}\n".encode())


# -- ServeGen: tenants as workloads


def tenants(shared: Path) -> dict:
    """Return requests per 10 minutes, dispersion and token means per 6 h of each tenant."""
    rates = pd.read_parquet(shared / "servegen_clients_top20.parquet")
    typed = pd.read_parquet(shared / "demand_days_typed.parquet")
    total = pd.read_csv(shared / "servegen_demand_10min.csv")
    fits = pd.read_csv(shared / "fit_clients.csv").set_index(["model", "client"])
    found = []
    for model, clients in TENANTS.items():
        missing = total[total.model == model].sort_values("t_s").missing.to_numpy(dtype=bool)
        for client in clients:
            rows = rates[(rates.model == model) & (rates.client == client)].sort_values("t_s")
            lengths = typed[(typed.model == model) & (typed.client == client)]
            fit = fits.loc[(model, client)] if (model, client) in fits.index else None
            found.append(tenant(model, client, rows, lengths, missing, fit))
    return {"tenants": found, "window_s": 600, "days": 9}


def tenant(
    model: str,
    client: int,
    rows: pd.DataFrame,
    lengths: pd.DataFrame,
    missing: np.ndarray,
    fit: pd.Series | None,
) -> dict:
    """Return one tenant's record."""
    counts = np.rint(rows.rate_rps.to_numpy() * 600.0).astype(int)
    filled = fill_from_neighbouring_day(counts, missing)
    return {
        "model": model,
        "client": client,
        "requests": filled.tolist(),
        "filled_windows": int(missing.sum()),
        "dispersion": round(half_window_dispersion(counts, rows.cv.to_numpy(), fit), 2),
        "input_tokens_6h": six_hour_means(lengths, "mean_in"),
        "output_tokens_6h": six_hour_means(lengths, "mean_out"),
    }


def fill_from_neighbouring_day(counts: np.ndarray, missing: np.ndarray) -> np.ndarray:
    """Replace windows without data by the same time of the day before, or after: real counts, no line between."""
    filled = counts.copy()
    for k in np.flatnonzero(missing):
        other = next(
            j
            for j in (k - WINDOWS_10MIN, k + WINDOWS_10MIN, k - 2 * WINDOWS_10MIN, k + 2 * WINDOWS_10MIN)
            if 0 <= j < len(counts) and not missing[j]
        )
        filled[k] = counts[other]
    return filled


def half_window_dispersion(counts: np.ndarray, cv: np.ndarray, fit: pd.Series | None) -> float:
    """Return the index of dispersion of a 5-minute count.

    The largest of three: pooled chat (1.5); the squared coefficient of variation of interarrival times (a renewal
    process); 1 + mean · sd², where sd is the robust standard deviation of the log change between neighbouring
    10-minute windows, which two independent halves with that noise would show.
    """
    busy = counts > 0
    renewal = float(np.median(cv[busy]) ** 2)
    change = np.diff(np.log(np.where(busy, counts, 1)))[busy[1:] & busy[:-1]]
    robust = float(fit.robust_sd_10min) if fit is not None else float(1.4826 * np.median(np.abs(change)))
    return max(MIN_DISPERSION, renewal, 1.0 + 0.5 * float(counts[busy].mean()) * robust**2)


def six_hour_means(lengths: pd.DataFrame, column: str) -> list[float]:
    """Return mean token lengths per quarter of each day: 36 numbers."""
    grid = lengths.sort_values(["day", "window"])[column].to_numpy().reshape(9, 4, 72)
    return [float(f"{value:.5g}") for value in grid.mean(axis=2).ravel()]


# -- Azure: one hour stretched to a day


def azure_hour(shared: Path) -> dict:
    """Return requests and token sums of each 12 s of the hour, as 288 windows."""
    table = pd.read_csv(shared / "warped_hour_288.csv")
    found: dict = {"bin_s": 12}
    for kind, rows in table.groupby("kind"):
        rows = rows.sort_values("window")
        names = ("requests", "context_tokens", "generated_tokens")
        found[str(kind)] = {name: rows[name].astype(int).tolist() for name in names}
    return found


# -- fits


def azure_week(shared: Path) -> dict:
    """Return a week of requests per 10 minutes from Monday on, by kind, and the fit of `weekly-ou` to it.

    The file's seven days begin on another weekday; whole days are put in the order of the week.
    """
    table = pd.read_csv(shared / "azure_week_2024_digitised.csv")
    found: dict = {"window_s": 600, "parameters": list(PROFILE), "bursts": azure_bursts(shared)}
    for kind, rows in table.groupby("kind"):
        start = pd.to_datetime(rows.start)
        rate = rows.rate_rps.to_numpy()[np.argsort(start.dt.day_of_week.to_numpy(), kind="stable")]
        hour = np.arange(len(rate)) / 6.0
        log, columns = np.log(rate), basis(hour).T
        profile = np.linalg.lstsq(columns, log, rcond=None)[0]
        found[str(kind)] = {
            "requests": np.rint(600.0 * rate).astype(int).tolist(),
            "profile": [round(float(value), 3) for value in profile],
            "band": round(float(((rows.highest_rps - rows.lowest_rps) / rows.rate_rps).median()), 3),
            **deviation_fit(log - columns @ profile),
        }
    return found


def azure_bursts(shared: Path) -> dict:
    """Return the index of dispersion of an hour's requests by kind and seconds, about the means of five minutes.

    That of five minutes themselves is about the mean of the hour.
    """
    found: dict = {}
    for kind, rows in pd.read_parquet(shared / "requests_1h.parquet").groupby("kind"):
        second = rows.t_ms.to_numpy() / 1000.0
        found[str(kind)] = {"rate_rps": round(len(second) / float(second.max()), 2)}
        for scale in (2, 10, 60, 300):
            counts = np.bincount((second // scale).astype(int))[: int(second.max() // scale)]
            each = 300 // scale
            part = counts[: len(counts) // each * each].reshape(-1, each) if each > 1 else counts[None]
            index = part.var(axis=1, ddof=1).mean() / part.mean()
            found[str(kind)][str(scale)] = round(float(index), 2)
    return found


def deviation_fit(left: np.ndarray) -> dict[str, float]:
    """Return spread and time of the mean-reverting part of what a profile leaves of log demand per 10 minutes.

    The semivariance at 10 and 60 minutes of an Ornstein-Uhlenbeck process with noise; the noise is what 10 minutes have
    more than that process.
    """
    variance = float(left.var())
    lags = {lag: 0.5 * float(np.mean((left[lag:] - left[:-lag]) ** 2)) for lag in (1, 6)}
    share = min(0.99, lags[6] / variance) if variance > 0 else 0.5
    time_min = -60.0 / np.log(1.0 - share)
    noise = max(0.0, lags[1] - variance * (1.0 - np.exp(-10.0 / time_min)))
    return {
        "ou_sd": round(float(variance**0.5), 3),
        "ou_time_min": round(float(time_min), 0),
        "noise_sd": round(float(noise**0.5), 3),
    }


def demand_fits(shared: Path) -> dict:
    """Return the calibration that the generators use, and the token lengths of request classes."""
    demand = json.loads((shared / "fit_params_demand.json").read_text())["demand"]
    drops = json.loads((shared / "fit_params_availability.json").read_text())
    rate, depth_a, depth_b, log_mean, log_sd, first_share = (
        round(drops["16"][name], 2) for name in DROP_FITS
    )
    return {
        "demand": {model: {name: fit[name] for name in DEMAND_FITS} for model, fit in sorted(demand.items())},
        "drops": {
            "drops_per_day": rate,
            "depth_a": depth_a,
            "depth_b": depth_b,
            "duration_log_mean_min": log_mean,
            "duration_log_sd": log_sd,
            "first_window_share": first_share,
        },
        "zone_correlation": {"same_region": TARGET_CORRELATION[0], "other_region": TARGET_CORRELATION[1]},
        "profiles": tenant_profiles(shared),
        "tokens": token_classes(shared),
    }


def tenant_profiles(shared: Path) -> dict[str, list[float]]:
    """Return level and harmonics of the day of the tenants whose days are alike, fitted as `azure_week` is.

    Their trace has no date, so all days have one profile.
    """
    terms, found = len(PROFILE) // 2, {}
    for record in tenants(shared)["tenants"]:
        if (record["model"], record["client"]) in REGULAR:
            log = np.log1p(np.array(record["requests"], dtype=float))
            on_wednesday = 48.0 + np.arange(len(log)) / 6.0 % 24.0
            profile = np.linalg.lstsq(basis(on_wednesday)[:terms].T, log, rcond=None)[0]
            found[f"{record['model']}/{record['client']}"] = [round(float(value), 3) for value in profile]
    return found


def token_classes(shared: Path) -> dict:
    """Return mean and squared coefficient of variation of the token lengths of request classes."""
    table = pd.read_csv(shared / "tokens_summary.csv").set_index(["kind", "field"])
    found = {}
    for kind in sorted({name for name, _ in table.index}):
        context, generated = table.loc[(kind, "context")], table.loc[(kind, "generated")]
        found[kind] = {
            "input_tokens": round(float(context["mean"]), 1),
            "input_cv2": round(float(context.cv) ** 2, 3),
            "output_tokens": round(float(generated["mean"]), 1),
            "output_cv2": round(float(generated.cv) ** 2, 3),
        }
    typed = pd.read_parquet(shared / "demand_days_typed.parquet")
    reasoning = typed[(typed.model == REASONING[0]) & (typed.client == REASONING[1])]
    found["reasoning"] = {
        "input_tokens": round(float(reasoning.mean_in.mean()), 1),
        "input_cv2": 1.0,
        "output_tokens": round(float(reasoning.mean_out.mean()), 1),
        "output_cv2": 1.0,
    }
    return found
