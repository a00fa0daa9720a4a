//! Dead letters, their copies until the bus has them, and definitions.

use orlog_model::{Change, ProgramRef};
use uuid::Uuid;

use super::samples::{letter, saga, tenant};
use super::{Rig, SPREAD};

/// Dead letters and definitions are kept once, listed, and dropped.
pub fn dead_letters_and_definitions_are_kept(mut rig: Rig) {
    let put = |of, id| Change::PutDeadLetter(Box::new(letter(of, id)));
    rig.commit(&[put("acme", 2), put("acme", 1), put(SPREAD, 9), put("acme", 2)]);
    let ids = |rig: &Rig, of, after: Option<u128>| -> Vec<u128> {
        let letters = rig.reader.dead_letters(&tenant(of), after.map(Uuid::from_u128), 9).unwrap();
        letters.iter().map(|letter| letter.id.as_u128()).collect()
    };
    assert_eq!(
        (ids(&rig, "acme", None), ids(&rig, "acme", Some(1)), ids(&rig, SPREAD, None)),
        (vec![1, 2], vec![2], vec![9])
    );
    rig.commit(&[Change::DropDeadLetter { tenant: tenant("acme"), id: Uuid::from_u128(1) }]);
    assert_eq!(rig.reader.dead_letter(&tenant("acme"), Uuid::from_u128(1)).unwrap(), None);
    let program = |hash| ProgramRef { saga: saga("order"), version: 3, hash: [hash; 16] };
    let (text, module) = (b"saga: order".to_vec(), b"\0asm\xff".to_vec());
    rig.commit(&[
        Change::PutDefinition { program: program(9), source: text.clone() },
        Change::PutDefinition { program: program(8), source: module.clone() },
    ]);
    assert_eq!(rig.reader.definition(&[9; 16]).unwrap(), Some((program(9), text.clone())));
    assert_eq!(rig.reader.definitions().unwrap(), [(program(8), module), (program(9), text)]);
}

/// One copy waits for every time a letter was kept, also of a letter that is gone.
pub fn copies_of_letters_wait_until_they_are_published(mut rig: Rig) {
    let put = |of, id| Change::PutDeadLetter(Box::new(letter(of, id)));
    rig.commit(&[put("acme", 2), put("acme", 1), put("zeta", 9), put("acme", 2)]);
    rig.commit(&[Change::DropDeadLetter { tenant: tenant("acme"), id: Uuid::from_u128(1) }]);
    let copies = |rig: &Rig, after| -> Vec<(u64, u128)> {
        let copies = rig.reader.unpublished_letters(after, 9).unwrap();
        copies.iter().map(|(sequence, letter)| (*sequence, letter.id.as_u128())).collect()
    };
    let waiting = copies(&rig, 0);
    assert_eq!(waiting.iter().map(|(_, id)| *id).collect::<Vec<_>>(), [2, 1, 9, 2]);
    assert_eq!(copies(&rig, waiting[1].0), waiting[2..]);
    assert_eq!(rig.reader.rows("letter_outbox", Some(&tenant("zeta")), 9).unwrap().len(), 1);
    rig.commit(&[Change::PublishedLetter { sequence: waiting[0].0 }]);
    assert_eq!(copies(&rig, 0), waiting[1..]);
}
