// Package config holds the one table of configuration keys: parsing, defaults, validation, DescribeConfigs and the
// reference page are all read from it.
package config
