package schema

import "farhand/wire"

// The bounds of what is described of a JSON document.
const (
	maxDepth   = 8   // containers around a value
	maxMembers = 64  // different keys at one place; where there are more they are data
	maxNodes   = 512 // places
	maxName    = 64  // characters of a name
	// fewMembers is how many keys make a table of data of an object once half of
	// the places are taken.
	fewMembers = 16
)

// kind is a type of JSON, numbers told apart by how they are written.
type kind byte

const (
	kindString kind = iota
	kindInteger
	kindNumber
	kindBoolean
	kindNull
	kindObject
	kindArray
	kinds
)

var kindNames = [kinds]string{"string", "integer", "number", "boolean", "null", "object", "array"}

// node is a place of a document: what the values are that stand there. Nil is one
// that isn't described.
type node struct {
	types   [kinds]int64
	size    span
	length  span
	element *node
	members []*node // by their first coming
	values  *node   // instead of members
	partial bool

	key  uint64 // of a member
	name []byte
}

func (n *node) count(k kind) {
	if n != nil {
		n.types[k]++
	}
}

// span is the least and the most of counts.
type span struct {
	any         bool
	least, most int64
}

func (s *span) add(n int64) {
	if !s.any {
		*s = span{true, n, n}
	}
	s.least, s.most = min(s.least, n), max(s.most, n)
}

func (s *span) merge(o span) {
	if o.any {
		s.add(o.least)
		s.add(o.most)
	}
}

// tree counts the nodes of a document.
type tree struct {
	named bool
	nodes int
}

// child is a new node below n, nil beyond the bounds.
func (t *tree) child(n *node, depth int) *node {
	if depth > maxDepth || t.nodes >= maxNodes {
		n.partial = true
		return nil
	}
	t.nodes++
	return new(node)
}

// element is the node of the elements of the arrays at n, which has so many
// containers around it.
func (t *tree) element(n *node, depth int) *node {
	if n == nil {
		return nil
	}
	if n.element == nil {
		n.element = t.child(n, depth)
	}
	return n.element
}

// member is the node of the member of this key.
func (t *tree) member(f *frame, key uint64, name []byte, depth int) *node {
	n := f.node
	if n == nil {
		return nil
	}
	if n.values != nil {
		return n.values
	}
	// Objects of one kind mostly have their keys in one order.
	if f.next < len(n.members) && n.members[f.next].key == key {
		f.next++
		return n.members[f.next-1]
	}
	for i, m := range n.members {
		if m.key == key {
			f.next = i + 1
			return m
		}
	}
	if len(n.members) == maxMembers || t.nodes >= maxNodes/2 && len(n.members) >= fewMembers {
		t.unite(n)
		return n.values
	}
	m := t.child(n, depth)
	if m == nil {
		return nil
	}
	m.key = key
	if t.named {
		m.name = append([]byte(nil), name...)
	}
	n.members = append(n.members, m)
	f.next = len(n.members)
	return m
}

// unite makes one place of all members of n.
func (t *tree) unite(n *node) {
	if n.values == nil {
		n.values = new(node)
		t.nodes++
	}
	members := n.members
	n.members = nil
	for _, m := range members {
		t.merge(n.values, m)
	}
}

// merge adds what stands at n to what stands at to. n is used up.
func (t *tree) merge(to, n *node) {
	t.nodes--
	for k, c := range n.types {
		to.types[k] += c
	}
	to.size.merge(n.size)
	to.length.merge(n.length)
	to.partial = to.partial || n.partial
	if n.element != nil {
		if to.element == nil {
			to.element, n.element = n.element, nil
		} else {
			t.merge(to.element, n.element)
		}
	}
	if n.values != nil && to.values == nil {
		t.unite(to)
	}
	if n.values != nil {
		t.merge(to.values, n.values)
	}
	for _, m := range n.members {
		t.join(to, m)
	}
}

// join adds a member to those of n.
func (t *tree) join(n, m *node) {
	if n.values != nil {
		t.merge(n.values, m)
		return
	}
	for _, x := range n.members {
		if x.key == m.key {
			t.merge(x, m)
			return
		}
	}
	n.members = append(n.members, m)
	if len(n.members) > maxMembers {
		t.unite(n)
	}
}

// told is what the preview says of n.
func (n *node) told(named bool) *wire.SchemaValue {
	v := &wire.SchemaValue{Types: make(map[string]int64), Partial: n.partial, Size: n.size.told(), Length: n.length.told()}
	for k, c := range n.types {
		if c > 0 {
			v.Types[kindNames[k]] = c
		}
	}
	if named {
		v.Name = keyName(n.name)
	}
	for _, m := range n.members {
		v.Members = append(v.Members, m.told(named))
	}
	if n.values != nil {
		v.Values = n.values.told(named)
	}
	if n.element != nil {
		v.Elements = n.element.told(named)
	}
	return v
}

func (s span) told() *wire.SchemaSpan {
	if !s.any {
		return nil
	}
	return &wire.SchemaSpan{Least: s.least, Most: s.most}
}
