//! Cases of dead letters, their unpublished copies, and definitions.

use orlog_model::{Change, DefinitionRef};
use uuid::Uuid;

use super::samples::{dead_letter, saga, tenant};
use super::{KEY_SHARDED, StoreFixture};

/// Dead letters and definitions are stored once, listed, and deleted.
pub fn dead_letters_and_definitions_are_stored(mut fixture: StoreFixture) {
    let put = |of, id| Change::PutDeadLetter(Box::new(dead_letter(of, id)));
    fixture.commit(&[
        put("acme", 2),
        put("acme", 1),
        put(KEY_SHARDED, 9),
        put("acme", 2),
    ]);
    let ids = |fixture: &StoreFixture, of, after: Option<u128>| -> Vec<u128> {
        let dead_letters = fixture
            .reader
            .dead_letters(&tenant(of), after.map(Uuid::from_u128), 9)
            .unwrap();
        dead_letters
            .iter()
            .map(|dead_letter| dead_letter.id.as_u128())
            .collect()
    };
    assert_eq!(
        (
            ids(&fixture, "acme", None),
            ids(&fixture, "acme", Some(1)),
            ids(&fixture, KEY_SHARDED, None)
        ),
        (vec![1, 2], vec![2], vec![9])
    );
    fixture.commit(&[Change::DropDeadLetter {
        tenant: tenant("acme"),
        id: Uuid::from_u128(1),
    }]);
    assert_eq!(
        fixture
            .reader
            .dead_letter(&tenant("acme"), Uuid::from_u128(1))
            .unwrap(),
        None
    );
    let program = |hash| DefinitionRef {
        saga: saga("order"),
        version: 3,
        hash: [hash; 16],
    };
    let (text, module) = (b"saga: order".to_vec(), b"\0asm\xff".to_vec());
    fixture.commit(&[
        Change::PutDefinition {
            program: program(9),
            source: text.clone(),
        },
        Change::PutDefinition {
            program: program(8),
            source: module.clone(),
        },
    ]);
    assert_eq!(
        fixture.reader.definition(&[9; 16]).unwrap(),
        Some((program(9), text.clone()))
    );
    assert_eq!(
        fixture.reader.definitions().unwrap(),
        [(program(8), module), (program(9), text)]
    );
}

/// One copy is pending for every time a dead letter was stored, also if the dead letter was deleted.
pub fn dead_letter_copies_wait_for_publication(mut fixture: StoreFixture) {
    let put = |of, id| Change::PutDeadLetter(Box::new(dead_letter(of, id)));
    fixture.commit(&[
        put("acme", 2),
        put("acme", 1),
        put("zeta", 9),
        put("acme", 2),
    ]);
    fixture.commit(&[Change::DropDeadLetter {
        tenant: tenant("acme"),
        id: Uuid::from_u128(1),
    }]);
    let copies = |fixture: &StoreFixture, after| -> Vec<(u64, u128)> {
        let copies = fixture.reader.unpublished_dead_letters(after, 9).unwrap();
        copies
            .iter()
            .map(|(sequence, dead_letter)| (*sequence, dead_letter.id.as_u128()))
            .collect()
    };
    let waiting = copies(&fixture, 0);
    assert_eq!(
        waiting.iter().map(|(_, id)| *id).collect::<Vec<_>>(),
        [2, 1, 9, 2]
    );
    assert_eq!(copies(&fixture, waiting[1].0), waiting[2..]);
    assert_eq!(
        fixture
            .reader
            .inspect_rows("dead_letter_outbox", Some(&tenant("zeta")), 9)
            .unwrap()
            .len(),
        1
    );
    fixture.commit(&[Change::DeadLetterPublished {
        sequence: waiting[0].0,
    }]);
    assert_eq!(copies(&fixture, 0), waiting[1..]);
}
