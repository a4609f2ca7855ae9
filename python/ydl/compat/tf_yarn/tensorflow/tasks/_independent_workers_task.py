"""Default task: chief, worker, parameter server or evaluator of an Estimator."""

from ...lifecycle import run_task
from ..cluster import own_address
from . import tf_task_common


def main() -> None:
    tf_task_common.prepare()
    run_task(lambda: tf_task_common.train_and_evaluate(tf_task_common.experiment()), own_address())


if __name__ == "__main__":
    main()
