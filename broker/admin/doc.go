// Package admin serves what people and monitoring ask a broker over HTTP: health, metrics, a small JSON API and a status
// page.
//
// Purpose: /livez says that the process answers, /readyz that it serves clients, /metrics has Prometheus series under the
// names that dashboards for Apache Kafka already use (those of Strimzi's exporter rules) and varve_ names for the rest,
// /api/v1/... has what `varve tier status` and others need, / is a page that needs no script.
//
// Invariants: nothing here changes state, and nothing waits for the object store, so that health and metrics stay
// truthful while the store is away. All numbers come through the small interfaces in [Sources]; a part that is nil is left
// out. Only series with a bounded number of labels exist: topics and partitions of this broker, event names, verbs and
// causes of store requests. Connections, header and body sizes and times are bounded.
//
// Crash cases: none, nothing is stored; counters start at zero with the process.
//
// Non-goals: authentication (the listener is loopback unless the operator says otherwise), changing anything.
package admin
