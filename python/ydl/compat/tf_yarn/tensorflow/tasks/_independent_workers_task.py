"""The usual task: chief, worker, server of parameters or evaluator of an Estimator."""

from ...life import live
from ..cluster import own_address
from . import tf_task_common


def main() -> None:
    tf_task_common.prepare()
    live(lambda: tf_task_common.train_and_evaluate(tf_task_common.experiment()), own_address())


if __name__ == "__main__":
    main()
