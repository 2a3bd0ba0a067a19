// Package tinymodel makes a language model of three megabytes whose answer is
// known, so that tests can ask a real server and compare every letter.
//
// It is a llama of one layer, in GGUF (ggml's docs/gguf.md). Its embeddings are
// random, its layer does next to nothing, and its output matrix has for each word
// the embedding of the word before it: who takes the likeliest next word, which is
// what temperature 0 means, gets the words one after another. What a prompt says is
// of no matter but for its last token, Start.
package tinymodel

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"strings"
)

// Start has to end every prompt: the first word follows it.
const Start = ">"

// Model is one to be made.
type Model struct {
	// Words are its answer, a token each and none twice; a space is written as such.
	Words []string
	// Endless begins anew after the last word instead of ending.
	Endless bool
}

// The shape of the network.
const (
	width       = 256
	inner       = 512
	heads       = 4
	context     = 2048
	alignment   = 32
	endOfAnswer = 2 // the token
)

// Write writes the model, always the same of the same words.
func (m Model) Write(w io.Writer) error {
	v, err := m.vocabulary()
	if err != nil {
		return err
	}
	f := &file{w: bufio.NewWriter(w)}
	tensors := v.tensors()
	f.bytes([]byte("GGUF"))
	f.number(uint32(3)) // version of the format
	f.number(uint64(len(tensors)))
	v.describe(f)
	offset := uint64(0)
	for _, t := range tensors {
		f.text(t.name)
		f.number(uint32(len(t.dims)))
		f.number(t.dims)
		f.number(uint32(0)) // 32-bit floats
		f.number(offset)
		offset += (uint64(4*len(t.values)) + alignment - 1) / alignment * alignment
	}
	f.pad()
	for _, t := range tensors {
		f.floats(t.values)
		f.pad()
	}
	if f.err != nil {
		return f.err
	}
	return f.w.Flush()
}

// vocabulary is every token, and which follows which.
type vocabulary struct {
	tokens []string
	kinds  []int32
	next   map[int]int
}

// Kinds of tokens.
const (
	normal  = 1
	unknown = 2
	control = 3
	single  = 6 // a byte that is part of no other token
)

func (v *vocabulary) add(token string, kind int32) int {
	v.tokens, v.kinds = append(v.tokens, token), append(v.kinds, kind)
	return len(v.tokens) - 1
}

func (m Model) vocabulary() (*vocabulary, error) {
	if len(m.Words) == 0 {
		return nil, errors.New("a model without words says nothing")
	}
	v := &vocabulary{next: make(map[int]int)}
	v.add("<unk>", unknown)
	v.add("<s>", control)
	v.add("</s>", control)
	for b := range 256 {
		v.add(fmt.Sprintf("<0x%02X>", b), single)
	}
	last := v.add(Start, normal)
	v.add(spelled(" "), normal)
	seen := map[string]bool{Start: true, " ": true}
	first := len(v.tokens)
	for _, word := range m.Words {
		if word == "" || seen[word] {
			return nil, fmt.Errorf("the word %q is empty, or there twice", word)
		}
		seen[word] = true
		token := v.add(spelled(word), normal)
		v.next[last], last = token, token
	}
	v.next[last] = endOfAnswer
	if m.Endless {
		v.next[last] = first
	}
	return v, nil
}

// spelled is a word as this kind of vocabulary has it: a space is a low bar.
func spelled(word string) string { return strings.ReplaceAll(word, " ", "▁") }

// Types of values.
const (
	typeUint32  = 4
	typeInt32   = 5
	typeFloat32 = 6
	typeBool    = 7
	typeText    = 8
	typeArray   = 9
)

// describe writes what stands before the tensors.
func (v *vocabulary) describe(f *file) {
	pairs := []struct {
		key   string
		value any
	}{
		{"general.architecture", "llama"},
		{"general.name", "tiny-test"},
		{"general.file_type", uint32(0)},
		{"general.alignment", uint32(alignment)},
		{"llama.block_count", uint32(1)},
		{"llama.context_length", uint32(context)},
		{"llama.embedding_length", uint32(width)},
		{"llama.feed_forward_length", uint32(inner)},
		{"llama.attention.head_count", uint32(heads)},
		{"llama.attention.head_count_kv", uint32(heads)},
		{"llama.attention.layer_norm_rms_epsilon", float32(1e-5)},
		{"llama.rope.dimension_count", uint32(width / heads)},
		{"llama.rope.freq_base", float32(10000)},
		{"llama.vocab_size", uint32(len(v.tokens))},
		{"tokenizer.ggml.model", "llama"},
		{"tokenizer.ggml.pre", "default"},
		{"tokenizer.ggml.tokens", v.tokens},
		{"tokenizer.ggml.scores", v.scores()},
		{"tokenizer.ggml.token_type", v.kinds},
		{"tokenizer.ggml.bos_token_id", uint32(1)},
		{"tokenizer.ggml.eos_token_id", uint32(endOfAnswer)},
		{"tokenizer.ggml.unknown_token_id", uint32(0)},
		{"tokenizer.ggml.add_bos_token", true},
		{"tokenizer.ggml.add_eos_token", false},
	}
	f.number(uint64(len(pairs)))
	for _, p := range pairs {
		f.text(p.key)
		f.value(p.value)
	}
}

// scores say which token is preferred: the earlier one.
func (v *vocabulary) scores() []float32 {
	all := make([]float32, len(v.tokens))
	for i := range all {
		all[i] = float32(-i)
	}
	return all
}

type tensor struct {
	name   string
	dims   []uint64
	values []float32
}

func (v *vocabulary) tensors() []tensor {
	r := rand.New(rand.NewPCG(1, 2))
	noise := func(n int, scale float64) []float32 {
		values := make([]float32, n)
		for i := range values {
			values[i] = float32(r.NormFloat64() * scale)
		}
		return values
	}
	ones := make([]float32, width)
	for i := range ones {
		ones[i] = 1
	}
	size := len(v.tokens)
	embeddings, output := noise(size*width, 1), noise(size*width, 0.01)
	for from, to := range v.next {
		copy(output[to*width:(to+1)*width], embeddings[from*width:(from+1)*width])
	}
	e, f, n := uint64(width), uint64(inner), uint64(size)
	return []tensor{
		{"token_embd.weight", []uint64{e, n}, embeddings},
		{"output_norm.weight", []uint64{e}, ones},
		{"output.weight", []uint64{e, n}, output},
		{"blk.0.attn_norm.weight", []uint64{e}, ones},
		{"blk.0.attn_q.weight", []uint64{e, e}, noise(width*width, 0.02)},
		{"blk.0.attn_k.weight", []uint64{e, e}, noise(width*width, 0.02)},
		{"blk.0.attn_v.weight", []uint64{e, e}, noise(width*width, 0.001)},
		{"blk.0.attn_output.weight", []uint64{e, e}, noise(width*width, 0.001)},
		{"blk.0.ffn_norm.weight", []uint64{e}, ones},
		{"blk.0.ffn_gate.weight", []uint64{e, f}, noise(width*inner, 0.001)},
		{"blk.0.ffn_up.weight", []uint64{e, f}, noise(width*inner, 0.001)},
		{"blk.0.ffn_down.weight", []uint64{f, e}, noise(inner*width, 0.001)},
	}
}

// file writes values as GGUF has them, lowest byte first. Its first error stays.
type file struct {
	w   *bufio.Writer
	n   int
	err error
}

func (f *file) bytes(b []byte) {
	if f.err == nil {
		_, f.err = f.w.Write(b)
		f.n += len(b)
	}
}

// number writes one of a fixed size, or several.
func (f *file) number(v any) {
	b, err := binary.Append(nil, binary.LittleEndian, v)
	if err != nil && f.err == nil {
		f.err = err
	}
	f.bytes(b)
}

func (f *file) floats(values []float32) {
	b := make([]byte, 0, 4*len(values))
	for _, x := range values {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	f.bytes(b)
}

func (f *file) text(s string) {
	f.number(uint64(len(s)))
	f.bytes([]byte(s))
}

// value writes a value behind its type.
func (f *file) value(v any) {
	array := func(kind uint32, length int) {
		f.number([]uint32{typeArray, kind})
		f.number(uint64(length))
	}
	switch v := v.(type) {
	case string:
		f.number(uint32(typeText))
		f.text(v)
	case uint32:
		f.number([]uint32{typeUint32, v})
	case float32:
		f.number(uint32(typeFloat32))
		f.number(v)
	case bool:
		f.number(uint32(typeBool))
		f.number(v)
	case []string:
		array(typeText, len(v))
		for _, s := range v {
			f.text(s)
		}
	case []float32:
		array(typeFloat32, len(v))
		f.floats(v)
	case []int32:
		array(typeInt32, len(v))
		f.number(v)
	}
}

// pad fills up to where the next tensor may begin.
func (f *file) pad() {
	if rest := f.n % alignment; rest != 0 {
		f.bytes(make([]byte, alignment-rest))
	}
}
