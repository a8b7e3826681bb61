package edge

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// textOf writes what is not zero in a request, with names for what differs from run to run.
func (e *env) textOf(req kmsg.Request) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s/%d", kmsg.NameForKey(req.Key()), req.GetVersion())
	e.fields(&b, reflect.ValueOf(req).Elem())
	return b.String()
}

func (e *env) fields(b *strings.Builder, v reflect.Value) {
	b.WriteByte('{')
	first := true
	for i := range v.NumField() {
		f, name := v.Field(i), v.Type().Field(i).Name
		if name == "Version" || name == "UnknownTags" || f.IsZero() {
			continue
		}
		if !first {
			b.WriteByte(' ')
		}
		first = false
		b.WriteString(name + "=")
		e.value(b, f)
	}
	b.WriteByte('}')
}

func (e *env) value(b *strings.Builder, v reflect.Value) {
	if named, ok := e.names[keyOf(v)]; ok {
		b.WriteString("<" + named + ">")
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		e.value(b, v.Elem())
	case reflect.Struct:
		e.fields(b, v)
	case reflect.String:
		b.WriteString(strconv.Quote(clip(v.String())))
	case reflect.Array:
		fmt.Fprintf(b, "%x", v.Interface())
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			fmt.Fprintf(b, "%d bytes", v.Len())
			return
		}
		b.WriteByte('[')
		for i := range v.Len() {
			if i > 0 {
				b.WriteByte(' ')
			}
			e.value(b, v.Index(i))
		}
		b.WriteByte(']')
	default:
		fmt.Fprint(b, v.Interface())
	}
}

// keyOf is how env.names knows a value; "" for those it does not.
func keyOf(v reflect.Value) string {
	switch v.Kind() {
	case reflect.Array:
		return fmt.Sprintf("%x", v.Interface())
	case reflect.Int32:
		return fmt.Sprint("int ", v.Int())
	case reflect.String:
		return "text " + v.String()
	}
	return ""
}

func clip(s string) string {
	const most = 40
	if len(s) <= most {
		return s
	}
	return fmt.Sprintf("%s... (%d bytes)", s[:most/2], len(s))
}

// codesOf lists the error codes of an answer, each with what it is about, sorted. The codes of a whole answer stand
// first, without a name.
func (e *env) codesOf(resp kmsg.Response) string {
	var out []string
	e.collect(reflect.ValueOf(resp).Elem(), "", &out)
	slices.Sort(out)
	if len(out) == 0 {
		return "no codes"
	}
	return strings.Join(out, " ")
}

// failed says that an answer has an error code.
func (e *env) failed(resp kmsg.Response) bool {
	var codes []string
	e.collect(reflect.ValueOf(resp).Elem(), "", &codes)
	return slices.ContainsFunc(codes, func(c string) bool { return c[strings.LastIndex(c, "=")+1:] != "0" })
}

// labels are the fields that say what a code is about.
var labels = []string{"Key", "Group", "State", "Topic", "ResourceName", "Partition", "Name"}

func (e *env) collect(v reflect.Value, label string, out *[]string) {
	for _, name := range labels {
		f := v.FieldByName(name)
		if f.Kind() == reflect.Pointer && !f.IsNil() {
			f = f.Elem()
		}
		if f.IsValid() && f.Kind() != reflect.Pointer && f.Kind() != reflect.Slice {
			text := clip(fmt.Sprint(f.Interface()))
			if named, ok := e.names[keyOf(f)]; ok {
				text = "<" + named + ">"
			}
			label = strings.TrimPrefix(label+"/"+text, "/")
		}
	}
	for i := range v.NumField() {
		f := v.Field(i)
		switch {
		case v.Type().Field(i).Name == "ErrorCode":
			text := strconv.FormatInt(f.Int(), 10)
			if label != "" {
				text = label + "=" + text
			}
			*out = append(*out, text)
		case f.Kind() == reflect.Slice && f.Type().Elem().Kind() == reflect.Struct:
			for j := range f.Len() {
				e.collect(f.Index(j), label, out)
			}
		}
	}
}
