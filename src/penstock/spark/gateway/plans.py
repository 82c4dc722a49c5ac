"""Plans: what a DataFrame reads, whether it makes new records, and columns let through its projections."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from penstock.errors import ClusterError
from penstock.spark.gateway.session import java, java_class

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DATASETS = ("org.apache.spark.sql.classic.Dataset", "org.apache.spark.sql.Dataset")
"""Where a plan is made into a DataFrame: since Spark 4, and before."""

KAFKA = "kafka"
"""What Spark calls a source that reads topics."""
_WIDENED = ("Project",)
_PASSED = ("Filter", "SubqueryAlias", "Sort", "Repartition", "RepartitionByExpression", "EventTimeWatermark")
"""Plan nodes that give out what their child gives out, so that a column can be let through them."""
_STATE_FUNCTIONS = ("FlatMapGroups", "TransformWithState")
"""How nodes are named that hand groups to a user's function which keeps state."""


def sources_read(frame: DataFrame) -> list[str]:
    """What a plan reads of streams, place by place, in the order of a query's offsets."""
    leaves = _analysed(frame).collectLeaves()
    found = (leaves.apply(index) for index in range(leaves.size()))
    return [_read_by(leaf) for leaf in found if leaf.isStreaming()]


def _read_by(leaf: Any) -> str:
    """What a leaf of a plan reads: Spark calls every topic by the same name, so it is said which."""
    name = str(leaf.toString())
    return place_of_topic(str(leaf.extraOptions().get("subscribe"))) if name == KAFKA else name


def place_of_topic(topic: str) -> str:
    """How `sources_read` names a topic."""
    return f"{KAFKA}[{topic}]"


def aggregates(frame: DataFrame) -> bool:
    """Whether the plan makes new records of several over the stream: what comes out are not those that
    went in. An aggregation of a table beside the stream does not count.
    """
    return next(_grouping(_analysed(frame)), None) is not None


def output_mode(frame: DataFrame) -> str:
    """The output mode that a query over this DataFrame needs: `append` or `update`.

    An aggregation's rows change and are emitted again; a state function says itself which it is.
    """
    for node in _grouping(_analysed(frame)):
        if node.nodeName() == "Aggregate":
            return "update"
        told = str(node.outputMode().toString()).lower()
        return "update" if told == "update" else "append"
    return "append"


def widened(frame: DataFrame, names: Sequence[str]) -> DataFrame | None:
    """The same DataFrame with columns let through that its projections dropped; None where that cannot be."""
    from pyspark.sql import DataFrame as PySparkDataFrame

    session: Any = frame.sparkSession
    plan = _let_through(java(session), _analysed(frame), set(names))
    if plan is None:
        return None
    # Spark's own way to make a DataFrame of a plan; the analysed plan is checked again by it.
    datasets = java_class(session, *(f"{name}$" for name in DATASETS))
    if datasets is None:
        raise ClusterError("this Spark has no known way to make a DataFrame of a plan")
    rows = getattr(datasets, "MODULE$").ofRows(session._jsparkSession, plan)
    return PySparkDataFrame(rows, session).select(*frame.columns, *names)


def lets_through(frame: DataFrame, before: DataFrame, name: str) -> bool:
    """Whether a column is that of a DataFrame this one was made of, untouched in every record there is.

    So it is where nothing but projections and filters lie above what is read: a join might put nulls in.
    """
    plan, known = _analysed(frame), _outputs(_analysed(before)).get(name)
    own = _outputs(plan).get(name)
    if own is None or known is None or own.exprId().toString() != known.exprId().toString():
        return False
    while (children := plan.children()).size():
        if plan.nodeName() not in _WIDENED and plan.nodeName() not in _PASSED:
            return False
        plan = children.apply(0)
    return True


def _analysed(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().analyzed()


def _grouping(plan: Any) -> Iterator[Any]:
    """The nodes of a plan that make new records of several, over the stream, the uppermost first."""
    if not plan.isStreaming():
        return
    name = str(plan.nodeName())
    if name == "Aggregate" or name.startswith(_STATE_FUNCTIONS):
        yield plan
    children = plan.children()
    for index in range(children.size()):
        yield from _grouping(children.apply(index))


def _let_through(jvm: Any, plan: Any, missing: set[str]) -> Any | None:
    """The plan giving out the missing columns too; None where a node on the way cannot."""
    present = _outputs(plan)
    if missing <= set(present):
        return plan
    kind = plan.nodeName()
    if kind not in _WIDENED and kind not in _PASSED:
        return None
    child = _let_through(jvm, plan.children().apply(0), missing - set(present))
    if child is None:
        return None
    if kind in _PASSED:
        return plan.withNewChildren(_scala_sequence(jvm, [child]))
    attributes = _outputs(child)
    project_list = plan.projectList()
    wanted = [project_list.apply(position) for position in range(project_list.size())]
    wanted += [attributes[name] for name in sorted(missing - set(present))]
    return jvm.org.apache.spark.sql.catalyst.plans.logical.Project(_scala_sequence(jvm, wanted), child)


def _outputs(plan: Any) -> dict[str, Any]:
    output = plan.output()
    attributes = (output.apply(position) for position in range(output.size()))
    return {attribute.name(): attribute for attribute in attributes}


def _scala_sequence(jvm: Any, items: Sequence[Any]) -> Any:
    found = jvm.java.util.ArrayList()
    for item in items:
        found.add(item)
    return jvm.org.apache.spark.api.python.PythonUtils.toSeq(found)
