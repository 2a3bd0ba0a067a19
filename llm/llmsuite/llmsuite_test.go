package llmsuite

import (
	"testing"

	"farhand/llm/llmtest"
)

func TestOllama(t *testing.T) { Run(t, llmtest.StartReal(t)) }

func TestReplay(t *testing.T) { Run(t, llmtest.Start(t, llmtest.Tiny, llmtest.Endless).URL) }
