//! Guarantees of the stream scan.

use orlog_bus::{Bus, Delivery, ScanStart};

use super::fixture::{BusFixture, bodies, publish, subscribe, subscription, take, within};

/// A scan covers a part of a stream that ends at the end of the stream at the time of the request.
pub async fn scan_needs_no_durable_name(fixture: &impl BusFixture) {
    let bus = fixture.open().await;
    publish(&*bus, "a.b", 0..1500).await;
    publish(&*bus, "a.c", 1500..1510).await;
    let last = publish(&*bus, "a.b", 1510..1512).await[1].sequence;
    let all = read(&*bus, &["a.b"], ScanStart::Sequence(0)).await;
    assert_eq!(
        bodies(&all),
        (0..1500).chain(1510..1512).collect::<Vec<_>>()
    );
    assert_eq!(all.last().map(|delivery| delivery.sequence), Some(last));
    let from = all[1499].sequence;
    assert_eq!(
        bodies(&read(&*bus, &["a.*"], ScanStart::Sequence(from)).await)[..3],
        [1499, 1500, 1501]
    );
    let since = all[0].published_at;
    assert_eq!(
        read(&*bus, &["a.b", "a.c"], ScanStart::Time(since))
            .await
            .len(),
        1512
    );
    let later = all[1501]
        .published_at
        .saturating_add(std::time::Duration::from_hours(1));
    assert!(
        read(&*bus, &["a.*"], ScanStart::Time(later))
            .await
            .is_empty()
    );
    assert!(
        read(&*bus, &["a.d"], ScanStart::Sequence(1))
            .await
            .is_empty()
    );

    let mut scan = bus
        .scan(vec!["a.*".to_owned()], ScanStart::Sequence(last))
        .await
        .expect("the scan reads");
    assert_eq!(scan.end_sequence(), last);
    publish(&*bus, "a.b", 1512..1513).await;
    assert_eq!(
        bodies(
            &within("the end", scan.next())
                .await
                .expect("the scan reads")
        ),
        [1511]
    );
    assert!(
        within("the end", scan.next())
            .await
            .expect("the scan reads")
            .is_empty(),
        "later messages are not scanned"
    );
    // The scan has no effect on consumers.
    let mut consumer = subscribe(&*bus, subscription("c", &["a.c"])).await;
    assert_eq!(take(&mut *consumer, 10).await.len(), 10);
}

async fn read(bus: &dyn Bus, filters: &[&str], since: ScanStart) -> Vec<Delivery> {
    let filters = filters.iter().map(|filter| (*filter).to_owned()).collect();
    let mut scan = bus.scan(filters, since).await.expect("the scan reads");
    let mut all = Vec::new();
    loop {
        let next = within("the scan", scan.next())
            .await
            .expect("the scan reads");
        if next.is_empty() {
            return all;
        }
        all.extend(next);
    }
}
