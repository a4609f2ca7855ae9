"""Common names of tf-yarn's modules."""

KV_CLUSTER_INSTANCES = "cluster_instances"
KV_TF_SESSION_CONFIG = "tf_session_config"
KV_EXPERIMENT_FN = "experiment_fn"
