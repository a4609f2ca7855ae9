"""Spark's sessions are configured by cluster-pack's own distribution alone."""

raise ImportError(
    "`cluster_pack.spark` ships archives to Spark, and ydl runs no Spark: install the distribution `cluster-pack` itself for it"
)
