"""Uses a node through the generated client of its API description."""

import datetime
import sys
import uuid

from orlog_client import AuthenticatedClient
from orlog_client.api.events import events_publish
from orlog_client.api.sagas import sagas_cancel, sagas_list, sagas_result, sagas_show, sagas_start
from orlog_client.api.tasks import tasks_complete, tasks_list
from orlog_client.models import (
    AcceptedEvents,
    CloudEvent,
    CompleteBody,
    ControlResponse,
    InstancePage,
    Problem,
    ResultView,
    SagaResultView,
    TaskPage,
)

client = AuthenticatedClient(base_url=sys.argv[1], token=sys.argv[2])

# The event starts an instance.
event = CloudEvent(
    specversion="1.0", id="e-1", source="urn:shop", type_="OrderPlaced", data={"orderId": "py-1"}
)
published = events_publish.sync(client=client, body=event)
assert isinstance(published, AcceptedEvents), published
assert published.accepted[0].matched == 1
repeated = events_publish.sync(client=client, body=[event])
assert isinstance(repeated, AcceptedEvents), repeated
assert repeated.accepted[0].duplicate

# The second instance starts when the response arrives, and its task is open.
started = sagas_start.sync("order", client=client, body={"orderId": "py-2"})
assert isinstance(started, ResultView), started
assert started.status == "running"
tasks = tasks_list.sync(client=client, saga="order", correlation="py-2")
assert isinstance(tasks, TaskPage), tasks
task_id: uuid.UUID = tasks.items[0].id
completion = CompleteBody(outcome="Approved", user="ann", data={"note": "fine"})
completed = tasks_complete.sync(task_id, client=client, body=completion)
assert isinstance(completed, ControlResponse), completed
result = sagas_result.sync("order", "py-2", client=client, wait="PT30S")
assert isinstance(result, ResultView), result
assert isinstance(result.result, SagaResultView), result
assert result.result.event == "OrderApproved"

# A control request without a body.
sagas_start.sync("order", client=client, body={"orderId": "py-3"})
cancelled = sagas_cancel.sync("order", "py-3", client=client)
assert isinstance(cancelled, ControlResponse), cancelled
assert cancelled.status == "cancelled"

page = sagas_list.sync(client=client, saga="order", prefix="py-")
assert isinstance(page, InstancePage), page
created: dict[str, datetime.datetime] = {item.correlation: item.created_at for item in page.items}
assert created["py-2"].tzinfo is not None

# An error is a problem with a code.
missing = sagas_show.sync("order", "none", client=client)
assert isinstance(missing, Problem), missing
assert missing.code == "OR0011"
print("used")
