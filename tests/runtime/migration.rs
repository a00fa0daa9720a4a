//! Migration of instances to another definition through the complete runtime: first the plan, then the
//! migration.

use std::sync::Arc;

use orlog_actors::ControlError;
use orlog_engine::{MigrationPlan, Rejection};
use orlog_model::{
    Clock, ControlAction, ControlRequest, CorrelationId, DefinitionRef, Event, InstanceKey, Status,
    Timestamp, Transition,
};
use orlog_program::{
    Context, Manifest, Migration, Program, ProgramError, ProgramInput, ProgramOutput,
};
use orlog_testkit::SimClock;
use orlog_testkit::fake_upstreams::FakeUpstreams;
use orlog_testkit::runtime::{TestRuntime, TestRuntimeConfig, control_request_id, tenant};
use orlog_testkit::sagas::EventRecorder;

const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);

/// Ledger program that migrates instances of the first version, except those with more than three
/// entries.
struct NextVersionProgram {
    old: Arc<dyn Program>,
    reference: DefinitionRef,
}

impl NextVersionProgram {
    fn new() -> Self {
        let old = EventRecorder::program();
        let reference = DefinitionRef {
            version: 2,
            hash: [8; 16],
            ..old.definition_ref().clone()
        };
        Self { old, reference }
    }
}

impl Program for NextVersionProgram {
    fn definition_ref(&self) -> &DefinitionRef {
        &self.reference
    }

    fn manifest(&self) -> &Manifest {
        self.old.manifest()
    }

    fn correlate(&self, event: &Event) -> Result<CorrelationId, ProgramError> {
        self.old.correlate(event)
    }

    fn apply(
        &self,
        state: Option<&[u8]>,
        input: &ProgramInput<'_>,
        context: &Context<'_>,
    ) -> Result<ProgramOutput, ProgramError> {
        self.old.apply(state, input, context)
    }

    fn migrate(
        &self,
        _: &dyn Program,
        state: &[u8],
        _: &Context<'_>,
    ) -> Result<Migration, Vec<String>> {
        let numbers = EventRecorder::numbers(state);
        if numbers.len() > 3 {
            return Err(vec![format!("{} numbers do not fit", numbers.len())]);
        }
        let transition = Transition {
            run: orlog_model::RunChange::default(),
            state: state.to_vec(),
            status: Status::Running,
            work: Vec::new(),
            timers: Vec::new(),
            tasks: Vec::new(),
            waits: Vec::new(),
            reference: None,
            variables: Vec::new(),
            failure: None,
            note: String::new(),
        };
        Ok(Migration {
            transition,
            tags: Vec::new(),
            is_mapped: numbers.len() > 1,
        })
    }
}

fn numbers(runtime: &TestRuntime, key: &InstanceKey) -> Vec<u32> {
    let instance = runtime
        .runtime
        .reader(key)
        .and_then(|reader| reader.instance(key).ok().flatten());
    instance.map_or_else(Vec::new, |instance| EventRecorder::numbers(&instance.state))
}

/// Opens the ledger with this number and adds entries.
async fn ledger(runtime: &TestRuntime, number: usize, entries: u32) -> InstanceKey {
    let key = EventRecorder::key(&tenant(), number);
    for entry in 0..entries {
        runtime
            .publish(&EventRecorder::event(&key, entry, START))
            .await;
    }
    runtime
        .wait_until("all is noted", |runtime| {
            numbers(runtime, &key).len() == entries as usize
        })
        .await;
    key
}

async fn migrate(
    runtime: &TestRuntime,
    key: &InstanceKey,
    version: u64,
    to: [u8; 16],
) -> Result<bool, ControlError> {
    let control = ControlRequest {
        id: control_request_id("migrate", 0),
        action: ControlAction::Migrate { to },
        expected_version: Some(version),
        at: START,
        user: Some("alice".to_owned()),
        reason: None,
        trace: None,
        wait_token: None,
    };
    runtime
        .runtime
        .control(key, control)
        .await
        .map(|response| response.applied)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn migration_plans_moves_and_reports_blocked_instances() {
    let home = tempfile::tempdir().expect("a directory can be created");
    let clock = SimClock::new(START) as Arc<dyn Clock>;
    let world = FakeUpstreams::new(Arc::clone(&clock), 1);
    let mut setup = TestRuntimeConfig::new(
        home.path().to_owned(),
        vec![EventRecorder::program()],
        clock,
    );
    let runtime = setup.start(&world).await;
    let (one, two, four) = (
        ledger(&runtime, 1, 1).await,
        ledger(&runtime, 2, 2).await,
        ledger(&runtime, 4, 4).await,
    );
    runtime.stop().await;
    let newer = Arc::new(NextVersionProgram::new());
    setup.programs.push(Arc::clone(&newer) as Arc<dyn Program>);
    let runtime = setup.start(&world).await;
    let saga = &one.saga;
    let mut planned = runtime
        .runtime
        .plan_migration(&tenant(), saga, newer.as_ref())
        .expect("readable");
    planned.sort_by(|a, b| a.key.cmp(&b.key));
    let plans: Vec<_> = planned
        .iter()
        .map(|planned| (&planned.key, planned.version, &planned.plan))
        .collect();
    let blocked = MigrationPlan::Blocked(vec!["4 numbers do not fit".to_owned()]);
    assert_eq!(
        plans,
        [
            (&one, 1, &MigrationPlan::Safe),
            (&two, 2, &MigrationPlan::Mapped),
            (&four, 4, &blocked)
        ]
    );

    let hash = newer.definition_ref().hash;
    let stale = migrate(&runtime, &two, 1, hash).await;
    assert_eq!(
        stale,
        Err(ControlError::Rejected(Rejection::VersionMismatch {
            expected: 1,
            actual: 2
        }))
    );
    assert_eq!(migrate(&runtime, &two, 2, hash).await, Ok(true));
    let Err(ControlError::Rejected(rejection)) = migrate(&runtime, &four, 4, hash).await else {
        panic!("it is blocked")
    };
    assert_eq!(
        rejection.to_string(),
        "instance cannot be migrated: 4 numbers do not fit"
    );
    let moved = runtime
        .reader()
        .instance(&two)
        .expect("readable")
        .expect("it is there");
    assert_eq!((moved.definition.version, moved.version), (2, 3));
    let history = runtime.reader().history(&two, 2, 9).expect("readable");
    assert_eq!(history[0].note, "migrate by alice; migrated from 1 to 2");
    runtime.publish(&EventRecorder::event(&two, 2, START)).await;
    runtime
        .wait_until("it goes on", |runtime| numbers(runtime, &two) == [0, 1, 2])
        .await;
    let remaining = runtime
        .runtime
        .plan_migration(&tenant(), saga, newer.as_ref())
        .expect("readable");
    assert_eq!(remaining.len(), 2, "what was moved is not planned again");
    runtime.stop().await;
}
