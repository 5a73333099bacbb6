"""The weighted objective (III.3) of SQPR, scaled so that each part lies between 0 and 1.

Turns a user's weights into factors on network use, CPU use and the fullest host, and values a
placement by them. Pure.
"""

from dataclasses import dataclass

import numpy as np

from millstream.decide.place.reuse.catalog import Catalog
from millstream.decide.place.reuse.state import PlanState


@dataclass(frozen=True, slots=True)
class Scales:
    """lambda_1 to lambda_4, with the errata of the printed ones mended."""

    admit: float
    network: float  # on the sum of rates sent between hosts
    cpu: float  # on the sum of CPU used
    balance: float  # on the CPU used at the fullest host

    @classmethod
    def of(cls, catalog: Catalog) -> "Scales":
        weights = catalog.weights
        return cls(
            admit=weights.admit,
            network=weights.network / _total(catalog.out_offered),
            cpu=weights.cpu / _total(catalog.cpu_offered),
            balance=weights.balance / _largest(catalog.cpu_offered),
        )


def _total(offered: "np.typing.NDArray[np.float64]") -> float:
    finite = offered[np.isfinite(offered)]
    return float(finite.sum()) or 1.0


def _largest(offered: "np.typing.NDArray[np.float64]") -> float:
    finite = offered[np.isfinite(offered)]
    return float(finite.max(initial=0.0)) or 1.0


def objective(state: PlanState, scales: Scales) -> float:
    """lambda_1 O_1 - lambda_2 O_2 - lambda_3 O_3 - lambda_4 O_4 of a placement."""
    rate = state.catalog.rate
    sent = sum(rate[stream] for (stream, _), origin in state.source.items() if origin < 0)
    return (
        scales.admit * len(state.clients)
        - scales.network * sent
        - scales.cpu * float(state.cpu_used.sum())
        - scales.balance * float(state.cpu_used.max(initial=0.0))
    )
