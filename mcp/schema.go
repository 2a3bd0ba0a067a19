package mcp

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

// schemaOf is the JSON schema of a struct. Its fields say what they are in tags:
//
//	jsonschema:"text"    the description; units stand in it
//	range:"0..100"       of a number, or of those in a list or map; either end may be left out
//	length:"1..32"       of a list or a string, likewise
//	enum:"in,out"        of a string, or of the strings in a list
//	default:"30"         what an absent field stands for, as JSON
//
// Fields without omitempty are required. A struct whose tags make no sense is a
// programming error.
func schemaOf[T any]() *jsonschema.Schema {
	t := reflect.TypeFor[T]()
	s, err := jsonschema.For[T](nil)
	if err != nil {
		panic(fmt.Sprintf("mcp: schema of %s: %v", t, err))
	}
	refine(s, t)
	return s
}

// refine puts what the tags of t say into its schema, and takes null away as a
// type, which no answer has and no argument needs.
func refine(s *jsonschema.Schema, t reflect.Type) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if len(s.Types) == 2 && s.Types[0] == "null" {
		s.Type, s.Types = s.Types[1], nil
	}
	switch t.Kind() {
	case reflect.Slice, reflect.Array:
		if s.Items != nil {
			refine(s.Items, t.Elem())
		}
	case reflect.Map:
		if s.AdditionalProperties != nil {
			refine(s.AdditionalProperties, t.Elem())
		}
	case reflect.Struct:
		for _, f := range reflect.VisibleFields(t) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			p := s.Properties[name]
			if f.Anonymous || p == nil {
				continue
			}
			refine(p, f.Type)
			constrain(p, f)
		}
	}
}

func constrain(p *jsonschema.Schema, f reflect.StructField) {
	one := p // what ranges and enums are about
	switch {
	case p.Items != nil:
		one = p.Items
	case p.Type == "object" && len(p.Properties) == 0 && p.AdditionalProperties != nil: // a map
		one = p.AdditionalProperties
	}
	if tag, ok := f.Tag.Lookup("range"); ok {
		one.Minimum, one.Maximum = ends(tag)
	}
	if tag, ok := f.Tag.Lookup("length"); ok {
		low, high := ends(tag)
		if p.Type == "array" {
			p.MinItems, p.MaxItems = integer(low), integer(high)
		} else {
			p.MinLength, p.MaxLength = integer(low), integer(high)
		}
	}
	if tag, ok := f.Tag.Lookup("enum"); ok {
		one.Enum = nil
		for word := range strings.SplitSeq(tag, ",") {
			one.Enum = append(one.Enum, word)
		}
	}
	if tag, ok := f.Tag.Lookup("default"); ok {
		if !json.Valid([]byte(tag)) {
			panic(fmt.Sprintf("mcp: default of %s isn't JSON: %s", f.Name, tag))
		}
		p.Default = json.RawMessage(tag)
	}
}

// ends reads "low..high".
func ends(tag string) (low, high *float64) {
	a, b, ok := strings.Cut(tag, "..")
	end := func(text string) *float64 {
		if text == "" {
			return nil
		}
		v, err := strconv.ParseFloat(text, 64)
		if err != nil || !ok {
			panic("mcp: no range: " + tag)
		}
		return &v
	}
	return end(a), end(b)
}

func integer(f *float64) *int {
	if f == nil {
		return nil
	}
	n := int(*f)
	return &n
}
