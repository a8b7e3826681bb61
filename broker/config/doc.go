// Package config holds the one table of configuration keys. Parsing, defaults, validation, warnings, DescribeConfigs and the
// reference page are all read from it.
//
// Purpose: a node's configuration is --set, the environment and a file in the format of java.util.Properties, over defaults;
// a topic's is its own overrides over the node's. Keys, types, defaults and rules are those of Apache Kafka 4.4
// (AbstractKafkaConfig.java, LogConfig.java, ServerTopicConfigSynonyms.java, DynamicBrokerConfig.java), so that a
// server.properties written for it starts unmodified; what Kafka has no name for begins with "varve.".
//
// Invariants: a key that is in no row is refused with the nearest one that is, a value that is not allowed with what is;
// a key of Kafka's that means nothing here is accepted, with one warning for all of them; a key that would promise safety
// which is not there (an authorizer, TLS, SASL) is refused. All that is wrong is told at once. A listener without security
// is never open to other machines unless varve.insecure.listeners says so. Of a Config only the values of dynamic keys
// change, all of them in one step; a key that says it is dynamic acts at once, the others cannot be set while the node
// runs. Secrets are in no error, warning or description.
//
// Crash cases: none, nothing is stored.
//
// Non-goals: keeping dynamic values (the metastore does), telling others that they have changed (broker does), resolving
// host names, opening anything: whether a port is free or a store answers is found out by who opens it.
package config
