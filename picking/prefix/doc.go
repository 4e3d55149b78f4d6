// Package prefix finds out which endpoints have a part of a prompt in their prefix cache: [Reader] turns the body of a
// request into a [Prompt], and [Table] has the routes that were learned from requests that were answered. Package
// picking chooses by that; the carriers (a module inside Envoy, steelyard picker) and the simulator share both.
//
// It is pure: bodies, endpoints and times in, matches out. It has no tokenizer, and asks no engine what its cache has:
// a route is a prediction.
//
// # Pieces and blocks
//
// Engines cache prompts in blocks, and a block is found only where everything before it is the same. So a prompt is cut
// into pieces of 64 bytes, or of 16 token ids of 4 bytes each, and each is hashed together with the hash of those
// before it:
//
//	h_0 = hash(key),  h_i = hash(h_{i−1}, piece i)
//
// The key is that of an engine's cache, besides the tokens: what differs in it shares nothing.
//
// How much of the engine's cache that is, follows from the size of its blocks, B tokens, and the tokens of a byte of
// text, c, as the control plane reports them (16 tokens and 1/4 where it does not know):
//
//	blocks = ⌊i · 64 · c / B⌋ of text,  ⌊i · 16 / B⌋ of token ids
//
// Hashes depend on neither, so what was learned holds on when an estimate changes, and pickers with different ones
// understand each other. What does not fill a block is left out, as engines do.
//
// # Steps
//
// Routes are not learned at every block, but at the steps of a prompt, each rounded down to a whole block, so that
// steps that are near each other become one:
//
//   - the ends of messages: where conversations go on, and where they branch;
//   - 16, 24, 32, 48, 64, 96, … pieces: where requests share a document inside a message, or have no messages;
//   - the end of the prompt.
//
// At most [MaxSteps] of them are kept, the first ones and the last ones.
//
// # Bodies
//
//	messages          OpenAI chat, Anthropic messages; with tools and system in front, wherever they are in the body
//	input             OpenAI responses: text, or messages; with tools and instructions in front
//	prompt            OpenAI completions: text, or token ids
//	text              SGLang's own: text
//	inputs            TGI's own: text
//	text_input        Triton's and TensorRT-LLM's own: text
//	input_ids,        token ids
//	prompt_token_ids
//
// Messages in token ids begin at a marker: 128006 (Llama 3, <|start_header_id|>) and 151644 (Qwen's ChatML,
// <|im_start|>), unless configured. A body may end anywhere, as only its first part is read. Everything else has no
// prompt.
//
// These members are the key, also where they are behind what is read of the prompt, with the engines that have them in
// theirs:
//
//	model                the name of a LoRA adapter: vLLM (generate_block_hash_extra_keys of kv_cache_utils.py), TGI
//	cache_salt           vLLM, SGLang; TensorRT-LLM (cacheSaltID of its BlockKey)
//	extra_key            SGLang (_compute_extra_key of serving_base.py)
//	lora_path            SGLang (Req of schedule_batch.py appends the adapter to the extra key)
//	lora_request,        TensorRT-LLM (loraTaskId of its BlockKey)
//	lora_task_id
//	parameters           of it, adapter_id (TGI), lora_name (Triton's vLLM backend) and truncate (TGI)
//	truncate_prompt_tokens
//	                     vLLM, also in parameters: see below
//	image_data, …        SGLang's own media, which may be anywhere in its text; also video_data, audio_data
//	prompt_embeds,       vLLM and SGLang: what comes in place of tokens
//	input_embeds
//	mm_processor_kwargs  vLLM: a part of the hash of each medium
//	chat_template        the frame of all messages
//
// So is the model that the path names (/v2/models/X/generate, and its version). A prompt of which the engine keeps only
// its last tokens, as truncate and truncate_prompt_tokens ask for, is cached as that end: it has no steps, unless it is
// shorter than that. Nor has a request that computes none, by its path (count_tokens, tokenize, render).
//
// vLLM's hash has the salt in the first block only; as each hash contains the one before, it differs in all. Media in
// messages count where they are, as in the engines; vLLM hashes their contents, or takes the uuid of the client.
//
// # Spelling
//
// Equal values are equal, however a client spells them, by what encoding/json and Python's json make of them: escapes,
// numbers, white space and the order of members do not matter, the last of equal members counts, a byte order mark does
// not. A member that is null is none; nor is one of the body that is empty. These are equal, because engines make them
// so (vLLM's chat_utils.py, SGLang's jinja_template_utils.py):
//
//   - a content that is a text, and a list of this text; a part of kind text is its text, whatever else it has;
//   - a prompt, or a part of the key, and a list of one;
//   - system or instructions, and a first message with the role system; input as a text, and one message of a user;
//   - image_url (video_url, audio_url) as an address, and as an object with its url; with a uuid, only that counts.
//
// Members cache_control are left out: clients move them with each turn. To hash equal values as equal bytes, a body is
// indexed ([index]) and written in one spelling ([reading]): messages with role and content first, what often differs,
// such as ids, behind. In the schemas of tools, the order of members is part of an engine's prompt, and here it is not.
//
// Strangers write bodies. So hashes are not secret, and a client that makes up collisions misroutes requests: it costs
// a cache miss, never a wrong answer.
//
// # Routes
//
// A route is a hash and an endpoint. A match is, for each endpoint, the deepest step that has a route there. Of several
// endpoints with the same prefix, all are known: each step has a set of them, with a bit for each, so a match walks
// over the steps once, whether one endpoint has them or a thousand. Routes expire [Limits.TTL] after a request last
// confirmed them; beyond [Limits.Routes], the oldest are evicted, those that other proxies learned before own ones.
// 100,000 of them, as they come and go, take 16 MB where up to 64 endpoints have them, and 28 MB where a thousand do.
package prefix
