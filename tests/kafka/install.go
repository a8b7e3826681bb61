package kafka

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"varve/tests/node"
)

// Cache names a file below .cache/compat, where everything that is installed lies.
func Cache(elem ...string) string {
	return filepath.Join(append([]string{node.Root(), ".cache", "compat"}, elem...)...)
}

func own(elem ...string) string {
	return filepath.Join(append([]string{node.Root(), "tests", "kafka"}, elem...)...)
}

// Jars is the class path of the broker, its tools and its client.
func Jars() string { return Cache("kafka", "lib") + "/*" }

// Log4j is the configuration that makes Kafka's programs log warnings and above on stderr.
func Log4j() string { return own("log4j2.properties") }

// Version is the pinned version, as the installed jars name it; "" when it is not installed.
func Version() string {
	jars, err := filepath.Glob(Cache("kafka", "lib", "kafka-clients-*.jar"))
	if err != nil || len(jars) != 1 {
		return ""
	}
	return strings.TrimSuffix(strings.TrimPrefix(filepath.Base(jars[0]), "kafka-clients-"), ".jar")
}

// Install brings the broker, its tools and its client from Maven.
func Install(ctx context.Context) error { return Maven(ctx, "kafka", own("kafka.pom.xml")) }

// Maven copies what a pom depends on into .cache/compat/<name>/lib.
func Maven(ctx context.Context, name, pom string) error {
	return Once(name, []string{pom}, func() error {
		lib := Cache(name, "lib")
		if err := os.RemoveAll(lib); err != nil {
			return err
		}
		cmd := exec.CommandContext(ctx, "mvn", "-q", "-B", "-f", pom, "-Dmaven.repo.local="+Cache("m2"),
			"org.apache.maven.plugins:maven-dependency-plugin:2.8:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory="+lib)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("mvn: %w\n%s", err, out)
		}
		return nil
	})
}

// Once runs install when the files that pin what is installed have changed since it last succeeded.
func Once(name string, pins []string, install func() error) error {
	sum := sha256.New()
	for _, f := range pins {
		text, err := os.ReadFile(f)
		if err != nil {
			return err
		}
		sum.Write(text)
	}
	want, stamp := hex.EncodeToString(sum.Sum(nil)), Cache(name+".installed")
	if got, err := os.ReadFile(stamp); err == nil && string(got) == want {
		return nil
	}
	if err := os.MkdirAll(Cache(), 0o755); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "installing %s\n", name)
	if err := install(); err != nil {
		return fmt.Errorf("install %s: %w", name, err)
	}
	return os.WriteFile(stamp, []byte(want), 0o644)
}

// Tool is a command-line program of Kafka's, or one compiled against its jars, that starts small: they are short-lived.
func Tool(ctx context.Context, jars, class string, args ...string) *exec.Cmd {
	all := append([]string{"-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto",
		"-Dlog4j2.configurationFile=" + Log4j(), "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", jars, class}, args...)
	return exec.CommandContext(ctx, "java", all...)
}
