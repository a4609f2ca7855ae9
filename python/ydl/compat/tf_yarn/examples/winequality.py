"""Wine Quality data set of the UCI repository: CSV files with a header, `;` between columns, and the label in the last one.

TensorFlow is imported when it is used: the caller of `run_on_yarn` may not have it.
"""

from typing import Any, Dict, List, Tuple

FEATURES = [
    "fixed_acidity",
    "volatile_acidity",
    "citric_acid",
    "residual_sugar",
    "chlorides",
    "free_sulfur_dioxide",
    "total_sulfur_dioxide",
    "density",
    "pH",
    "sulphates",
    "alcohol",
]
LABEL = "quality"
CLASSES = 10
"""Grades of a wine, from 0 to 9."""
BUCKETS = 1000
"""Rows are divided by a hash of their text, so that each row is always in the same part."""


def get_dataset(path: str, train_fraction: float = 0.7, split: str = "train") -> Any:
    """Returns the rows of one part, `train` or `test`, as pairs of features by name and label."""
    if split not in ("train", "test"):
        raise ValueError("`{}` is not a part of the data: use `train` or `test`".format(split))
    import tensorflow as tf

    limit = int(train_fraction * BUCKETS)

    def is_selected(*columns: Any) -> Any:
        text = tf.strings.join([tf.as_string(column) for column in columns])
        is_training = tf.strings.to_hash_bucket_fast(text, BUCKETS) < limit
        return is_training if split == "train" else tf.logical_not(is_training)

    def labelled(*columns: Any) -> Tuple[Dict[str, Any], Any]:
        return {name: columns[number] for number, name in enumerate(FEATURES)}, columns[len(FEATURES)]

    types = [tf.float32 for _ in FEATURES] + [tf.int32]
    rows = tf.data.experimental.CsvDataset(path, types, header=True, field_delim=";")
    return rows.filter(is_selected).map(labelled)


def get_feature_columns() -> List[Any]:
    """Returns a numeric feature column for each feature."""
    import tensorflow as tf

    return [tf.feature_column.numeric_column(name) for name in FEATURES]


def get_n_classes() -> int:
    """Returns the number of classes."""
    return CLASSES
