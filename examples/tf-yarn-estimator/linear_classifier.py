"""tf-yarn's linear classifier: a chief trains it, an evaluator evaluates each checkpoint, TensorBoard shows both."""

import argparse
import json
import logging
import os

import wine
from tf_yarn import Experiment, TaskSpec, run_on_yarn


def experiment_of(model_dir, steps):
    def experiment_fn():
        import tensorflow as tf

        if "://" in model_dir:
            import tensorflow_io  # noqa: F401  provides additional file systems since TensorFlow 2.6

        train, test = wine.wines()

        def rows(data):
            return tf.data.Dataset.from_tensor_slices(({"chemistry": data[0]}, data[1]))

        estimator = tf.estimator.LinearClassifier(
            [tf.feature_column.numeric_column("chemistry", (wine.FEATURES,))],
            model_dir=model_dir,
            n_classes=3,
            optimizer=lambda: tf.keras.optimizers.legacy.SGD(0.05),
            config=tf.estimator.RunConfig(tf_random_seed=1, save_checkpoints_steps=50, log_step_count_steps=20),
        )
        return Experiment(
            estimator,
            tf.estimator.TrainSpec(lambda: rows(train).shuffle(140).repeat().batch(32), max_steps=steps),
            tf.estimator.EvalSpec(lambda: rows(test).batch(wine.TEST_ROWS), steps=1, start_delay_secs=1, throttle_secs=1),
        )

    return experiment_fn


def main():
    parser = argparse.ArgumentParser(description="Train a linear classifier of wines.")
    add = parser.add_argument
    add("--environment", help="environment of the tasks: archive, virtual environment, or interpreter on all nodes")
    add("--model-dir", default="/tmp/tf-yarn-wine", help="a directory shared by all tasks")
    add("--steps", type=int, default=200)
    add("--evaluator-alone", action="store_true", help="evaluate existing checkpoints without training")
    args = parser.parse_args()
    model_dir = args.model_dir if "://" in args.model_dir else os.path.abspath(args.model_dir)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s:%(name)s: %(message)s")
    specs = {
        "chief": TaskSpec(memory="2 GiB", vcores=1),
        "evaluator": TaskSpec(memory="2 GiB", vcores=1),
        "tensorboard": TaskSpec(memory="2 GiB", vcores=1, tb_termination_timeout_seconds=1),
    }
    options = {}
    if args.evaluator_alone:
        specs = {"evaluator": specs["evaluator"]}
        options["custom_task_module"] = "tf_yarn.tasks.evaluator_task"
    metrics = run_on_yarn(
        args.environment,
        experiment_of(model_dir, args.steps),
        specs,
        files={os.path.basename(wine.__file__): wine.__file__},
        env={"TF_CPP_MIN_LOG_LEVEL": "2"},
        name="wine",
        **options,
    )
    seconds = {task: span and round(span.total_seconds(), 1) for task, span in metrics.container_duration.items()}
    print(json.dumps({"training": str(metrics.total_training_duration), "containers": seconds}), flush=True)


if __name__ == "__main__":
    main()
