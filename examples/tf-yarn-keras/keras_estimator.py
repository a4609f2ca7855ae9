"""tf-yarn's Keras example: a model is converted to an Estimator, trained by chief and worker with a parameter server."""

import argparse
import logging
import os

from tf_yarn.tensorflow import Experiment, TaskSpec, run_on_yarn


def experiment_of(model_dir, steps):
    def experiment_fn():
        import importlib.metadata

        import numpy as np
        import tensorflow as tf

        if "://" in model_dir:
            import tensorflow_io  # noqa: F401  provides additional file systems since TensorFlow 2.6

        table = importlib.metadata.distribution("scikit-learn").locate_file("sklearn/datasets/data/iris.csv")
        rows = np.random.RandomState(1).permutation(np.loadtxt(table, delimiter=",", skiprows=1, dtype=np.float32))
        rows[:, :4] = (rows[:, :4] - rows[:, :4].mean(axis=0)) / rows[:, :4].std(axis=0)

        def data(part):
            return tf.data.Dataset.from_tensor_slices((part[:, :4], part[:, 4].astype(np.int64)))

        model = tf.keras.Sequential(
            [tf.keras.layers.Dense(16, activation="relu", input_shape=(4,)), tf.keras.layers.Dense(3, activation="softmax")]
        )
        optimizer = tf.keras.optimizers.legacy.SGD(0.1)
        model.compile(loss="sparse_categorical_crossentropy", optimizer=optimizer, metrics=["accuracy"])
        config = tf.estimator.RunConfig(model_dir, tf_random_seed=1, save_checkpoints_steps=100, log_step_count_steps=50)
        estimator = tf.keras.estimator.model_to_estimator(model, model_dir=model_dir, config=config)
        return Experiment(
            estimator,
            tf.estimator.TrainSpec(lambda: data(rows[30:]).shuffle(120).repeat().batch(32), max_steps=steps),
            tf.estimator.EvalSpec(lambda: data(rows[:30]).batch(30), steps=1, start_delay_secs=1, throttle_secs=1),
        )

    return experiment_fn


def main():
    parser = argparse.ArgumentParser(description="Train a Keras model of irises.")
    add = parser.add_argument
    add("--environment", help="environment of the tasks: archive, virtual environment, or interpreter on all nodes")
    add("--model-dir", default="/tmp/tf-yarn-iris", help="a directory shared by all tasks")
    add("--steps", type=int, default=300)
    args = parser.parse_args()
    model_dir = args.model_dir if "://" in args.model_dir else os.path.abspath(args.model_dir)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s:%(name)s: %(message)s")
    size = {"memory": "2 GiB", "vcores": 1}
    metrics = run_on_yarn(
        experiment_of(model_dir, args.steps),
        {
            "chief": TaskSpec(**size),
            "worker": TaskSpec(**size),
            "ps": TaskSpec(**size),
            "evaluator": TaskSpec(**size),
            "tensorboard": TaskSpec(**size, tb_termination_timeout_seconds=1),
        },
        pyenv_zip_path=args.environment,
        env={"TF_CPP_MIN_LOG_LEVEL": "2"},
        name="iris",
    )
    print(f"trained for {metrics.total_training_duration}, evaluated for {metrics.total_eval_duration}", flush=True)


if __name__ == "__main__":
    main()
