package main

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

func cache(elem ...string) string {
	return filepath.Join(append([]string{node.Root(), ".cache", "compat"}, elem...)...)
}

func suiteDir(elem ...string) string {
	return filepath.Join(append([]string{node.Root(), "tests", "compat", "suite"}, elem...)...)
}

func kafkaJars() string    { return cache("kafka", "lib") + "/*" }
func clients3Jars() string { return cache("clients3", "lib") + "/*" }
func log4jFile() string    { return suiteDir("java", "log4j2.properties") }

// once runs install when the files that pin what is installed have changed since it last succeeded.
func once(name string, pins []string, install func() error) error {
	sum := sha256.New()
	for _, f := range pins {
		text, err := os.ReadFile(f)
		if err != nil {
			return err
		}
		sum.Write(text)
	}
	want, stamp := hex.EncodeToString(sum.Sum(nil)), cache(name+".installed")
	if got, err := os.ReadFile(stamp); err == nil && string(got) == want {
		return nil
	}
	if err := os.MkdirAll(cache(), 0o755); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "installing %s\n", name)
	if err := install(); err != nil {
		return fmt.Errorf("install %s: %w", name, err)
	}
	return os.WriteFile(stamp, []byte(want), 0o644)
}

func command(ctx context.Context, dir, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, tailOf(string(out), 40))
	}
	return nil
}

func installMaven(ctx context.Context, name, pom string) error {
	pom = suiteDir("java", pom)
	return once(name, []string{pom}, func() error {
		lib := cache(name, "lib")
		if err := os.RemoveAll(lib); err != nil {
			return err
		}
		return command(ctx, suiteDir("java"), "mvn", "-q", "-B", "-f", pom, "-Dmaven.repo.local="+cache("m2"),
			"dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory="+lib)
	})
}

func installKafka(ctx context.Context) error { return installMaven(ctx, "kafka", "kafka.pom.xml") }

// compileJava compiles our programs against the client jars that they then run with.
func compileJava(ctx context.Context, name, jars string) error {
	src, err := filepath.Glob(suiteDir("java", "*.java"))
	if err != nil {
		return err
	}
	return once(name+"-classes", src, func() error {
		out := cache(name, "classes")
		if err := os.MkdirAll(out, 0o755); err != nil {
			return err
		}
		return command(ctx, suiteDir("java"), "javac", append([]string{"-nowarn", "-d", out, "-cp", jars}, src...)...)
	})
}

func installJava4(ctx context.Context) error {
	if err := installKafka(ctx); err != nil {
		return err
	}
	return compileJava(ctx, "kafka", kafkaJars())
}

func installJava3(ctx context.Context) error {
	if err := installMaven(ctx, "clients3", "clients3.pom.xml"); err != nil {
		return err
	}
	return compileJava(ctx, "clients3", clients3Jars())
}

func installPython(ctx context.Context) error {
	pins := suiteDir("python", "requirements.txt")
	return once("python", []string{pins}, func() error {
		if err := command(ctx, cache(), "python3", "-m", "venv", cache("python")); err != nil {
			return err
		}
		return command(ctx, cache(), cache("python", "bin", "pip"), "install", "-q", "--disable-pip-version-check", "-r", pins)
	})
}

func installNode(ctx context.Context) error {
	pins := suiteDir("node", "package.json")
	return once("node", []string{pins}, func() error {
		if err := os.MkdirAll(cache("node"), 0o755); err != nil {
			return err
		}
		text, err := os.ReadFile(pins)
		if err != nil {
			return err
		}
		if err := os.WriteFile(cache("node", "package.json"), text, 0o644); err != nil {
			return err
		}
		return command(ctx, cache("node"), "npm", "install", "--no-audit", "--no-fund", "--loglevel=error")
	})
}

func installKcat(ctx context.Context) error {
	if _, err := exec.LookPath("kcat"); err == nil {
		return nil
	}
	return once("kcat", nil, func() error { return command(ctx, "/", "apt-get", "install", "-y", "-qq", "kcat") })
}

// javaCommand starts small: cells are many short processes.
func javaCommand(ctx context.Context, jars, class string, args ...string) *exec.Cmd {
	all := append([]string{"-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto",
		"-Dlog4j2.configurationFile=" + log4jFile(), "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", jars, class}, args...)
	return exec.CommandContext(ctx, "java", all...)
}

func tailOf(s string, lines int) string {
	all := strings.Split(strings.TrimRight(s, "\n"), "\n")
	if len(all) > lines {
		all = all[len(all)-lines:]
	}
	return strings.Join(all, "\n")
}
