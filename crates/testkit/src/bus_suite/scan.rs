//! The promise about what lies in the stream already.

use orlog_bus::{Bus, Delivery, Since};

use super::fixture::{Ground, bodies, publish, subscribe, subscription, take, within};

/// "A part of a stream that ends where the stream ended when it was asked for."
pub async fn the_past_is_read_without_a_name(ground: &impl Ground) {
    let bus = ground.open().await;
    publish(&*bus, "a.b", 0..1500).await;
    publish(&*bus, "a.c", 1500..1510).await;
    let last = publish(&*bus, "a.b", 1510..1512).await[1].sequence;
    let all = read(&*bus, &["a.b"], Since::Sequence(0)).await;
    assert_eq!(bodies(&all), (0..1500).chain(1510..1512).collect::<Vec<_>>());
    assert_eq!(all.last().map(|delivery| delivery.sequence), Some(last));
    let from = all[1499].sequence;
    assert_eq!(bodies(&read(&*bus, &["a.*"], Since::Sequence(from)).await)[..3], [1499, 1500, 1501]);
    let since = all[0].published_at;
    assert_eq!(read(&*bus, &["a.b", "a.c"], Since::Time(since)).await.len(), 1512);
    let later = all[1501].published_at.after(std::time::Duration::from_hours(1));
    assert!(read(&*bus, &["a.*"], Since::Time(later)).await.is_empty());
    assert!(read(&*bus, &["a.d"], Since::Sequence(1)).await.is_empty());

    let mut past = bus.read_past(vec!["a.*".to_owned()], Since::Sequence(last)).await.expect("it reads");
    assert_eq!(past.end(), last);
    publish(&*bus, "a.b", 1512..1513).await;
    assert_eq!(bodies(&within("the end", past.next()).await.expect("it reads")), [1511]);
    assert!(
        within("the end", past.next()).await.expect("it reads").is_empty(),
        "what comes later is not the past"
    );
    // Nobody who reads for work has lost anything by it.
    let mut consumer = subscribe(&*bus, subscription("c", &["a.c"])).await;
    assert_eq!(take(&mut *consumer, 10).await.len(), 10);
}

async fn read(bus: &dyn Bus, filters: &[&str], since: Since) -> Vec<Delivery> {
    let filters = filters.iter().map(|filter| (*filter).to_owned()).collect();
    let mut past = bus.read_past(filters, since).await.expect("it reads");
    let mut all = Vec::new();
    loop {
        let next = within("the past", past.next()).await.expect("it reads");
        if next.is_empty() {
            return all;
        }
        all.extend(next);
    }
}
