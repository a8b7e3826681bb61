package config

import (
	"reflect"
	"strings"
	"testing"
)

func TestParseProperties(t *testing.T) {
	for _, tc := range []struct {
		name, in string
		want     []property
	}{
		{"separators", "a=1\nb:2\nc 3\nd\t=\t4\ne : 5\nf==6\ng = = 7\nh", []property{{"a", "1", 1}, {"b", "2", 2}, {"c", "3", 3}, {"d", "4", 4}, {"e", "5", 5}, {"f", "=6", 6}, {"g", "= 7", 7}, {"h", "", 8}}},
		{"comments and blank lines", "# a=1\n\n  ! b=2\n\t\nc=3#4\n", []property{{"c", "3#4", 5}}},
		{"continuation", "a=1,\\\n   2,\\\n\t3\nb=x\\\\\nc=y\\\\\\\nz", []property{{"a", "1,2,3", 1}, {"b", `x\`, 4}, {"c", `y\z`, 5}}},
		{"a comment sign in a continuation is text", "a=1\\\n#2", []property{{"a", "1#2", 1}}},
		{"a comment is not continued", "# x\\\na=1", []property{{"a", "1", 2}}},
		{"line ends", "a=1\r\nb=2\rc=3", []property{{"a", "1", 1}, {"b", "2", 2}, {"c", "3", 3}}},
		{"escapes", `a\=b\:c\ d = x\ty\u00e9\ud83d\ude00\q\ `, []property{{"a=b:c d", "x\tyé😀q ", 1}}},
		{"trailing space stays", "a=1 \n", []property{{"a", "1 ", 1}}},
		{"UTF-8", "a=é\n", []property{{"a", "é", 1}}},
		{"ISO-8859-1", "a=\xe9\n", []property{{"a", "é", 1}}},
		{"byte order mark", "\ufeffa=1", []property{{"a", "1", 1}}},
		{"backslash at the very end", `a=1\`, []property{{"a", "1", 1}}},
		{"lone backslash", "\\\n#x\n \\\n a=1", []property{{"a", "1", 4}}},
		{"empty key", "=1", []property{{"", "1", 1}}},
	} {
		got, err := parseProperties([]byte(tc.in))
		if err != nil || !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s: got %+v, %v, want %+v", tc.name, got, err, tc.want)
		}
	}
	for _, bad := range []string{`a=\u12`, `a=\uxyzw`, `\u00=1`, strings.Repeat("#", maxPropertiesBytes+1)} {
		if _, err := parseProperties([]byte(bad)); err == nil {
			t.Errorf("%.20q: no error", bad)
		}
	}
}

// FuzzParseProperties holds that any input is parsed or refused, and that what was parsed reads the same once it is
// written out plainly.
func FuzzParseProperties(f *testing.F) {
	for _, seed := range []string{"a=1\nb:2\nc 3", "a\\\n b=c", `k\u0041=v\ud800`, "#x\\\ny", "a=\xff\\", "\\\n\\\n"} {
		f.Add([]byte(seed))
	}
	escape := strings.NewReplacer(`\`, `\\`, "\n", `\n`, "\r", `\r`, "\t", `\t`, "\f", `\f`, " ", `\ `, "=", `\=`, ":", `\:`, "#", `\#`, "!", `\!`)
	f.Fuzz(func(t *testing.T, data []byte) {
		props, err := parseProperties(data)
		if err != nil {
			return
		}
		var b strings.Builder
		for _, p := range props {
			b.WriteString(escape.Replace(p.Key) + "=" + escape.Replace(p.Value) + "\n")
		}
		if b.Len() > maxPropertiesBytes {
			return
		}
		again, err := parseProperties([]byte(b.String()))
		if err != nil || len(again) != len(props) {
			t.Fatalf("%q: %d properties, then %d, %v", data, len(props), len(again), err)
		}
		for i := range props {
			if props[i].Key != again[i].Key || props[i].Value != again[i].Value {
				t.Fatalf("%+v became %+v", props[i], again[i])
			}
		}
	})
}

func FuzzLoadNeverPanics(f *testing.F) {
	f.Add("listeners", "PLAINTEXT://[::1]:9092,X://:0")
	f.Add("log.roll.hours", "2147483647")
	f.Add("controller.quorum.voters", "1@a:1,2@[::]:2")
	f.Add("varve.tier.url", "s3://b?x=%")
	f.Fuzz(func(t *testing.T, key, value string) {
		c, _, err := Load(LoadOptions{Sets: []string{key + "=" + value}, Data: "/d"})
		if err != nil {
			return
		}
		if _, err := c.Topic(nil); err != nil {
			t.Fatal(err)
		}
		c.DescribeBroker()
		c.DescribeTopic(map[string]string{key: value})
	})
}
