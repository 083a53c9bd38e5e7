"""`dynaduck` with a lease that is watched for seconds: there is no setting, so tests start this."""

from __future__ import annotations

import os

from checkpoints.lease import LeaseTimes
from connector.cli import main
from connector.cluster import wiring

if __name__ == "__main__":
    observe_s = float(os.environ.get("TEST_OBSERVE_S", "3"))
    wiring.TIMES = LeaseTimes(
        observe_s=observe_s,
        renew_every_s=observe_s / 3,
        valid_s=observe_s * 5 / 6,
        retry_s=observe_s / 30,
        look_every_s=observe_s / 6,
    )
    main()
