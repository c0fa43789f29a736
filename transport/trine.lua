-- Wireshark dissector of the packet protocol, version 1 (PROTOCOL.md sections 2 and 3).
--
--   wireshark -X lua_script:transport/trine.lua capture.pcapng
--   tshark -X lua_script:transport/trine.lua -r capture.pcapng -Y 'trine.type == 1'
--
-- UDP packets are recognized by their contents, whatever their port. A datagram may hold several
-- packets back to back; each gets its own tree. Checksums are checked where the capture has the session's CONNECT.
--
-- Sealed packets (section 9) are opened with a key log, which `--key-log FILE` of a replica or a client writes:
--
--   tshark -X lua_script:transport/trine.lua -o trine.key_log:keys.log -r capture.pcapng

local trine = Proto("trine", "trine RPC transport")

local HEADER_BYTES = 24
local EXTENSION_BYTES = 8
local TAG_BYTES = 16
local PROOF_BYTES = 16
local RUN_PACKETS_MAX = 32
local VERSION = 1

local types = {
  [1] = "REQUEST", [2] = "RESPONSE", [3] = "CREDIT RETURN", [4] = "REQUEST FOR RESPONSE",
  [5] = "BUSY", [6] = "NOTICE", [7] = "RESET", [8] = "CONNECT", [9] = "COOKIE", [10] = "ACCEPT", [11] = "REFUSE",
  [12] = "DISCONNECT", [13] = "DISCONNECTED", [14] = "PING", [15] = "PONG",
}
local REQUEST, RESPONSE, REQUEST_FOR_RESPONSE = 1, 2, 4
local CONNECT, COOKIE, ACCEPT, REFUSE, DISCONNECT, PING = 8, 9, 10, 11, 12, 14
local DISCONNECTED, RESET, NOTICE = 13, 7, 6
local refusals = {
  [1] = "version mismatch", [2] = "wrong cluster", [3] = "full", [4] = "key required", [5] = "key unknown",
  [6] = "key wrong",
}
-- What a replica's request types are called (replica/protocol/src/message/mod.rs).
local kinds = {
  [1] = "CLIENT", [2] = "APPEND", [3] = "RAFT", [4] = "SNAPSHOT", [5] = "BOOTSTRAP", [6] = "JOIN", [7] = "STATUS",
  [8] = "ADMIN", [9] = "CLIENT BATCH", [10] = "AGREE",
  [12] = "BACKUP", [13] = "WATCH", [14] = "LEADER SECRET",
}
local GOOD, BAD, NOT_CHECKED = 1, 2, 3
local verdicts = { [GOOD] = "good", [BAD] = "bad", [NOT_CHECKED] = "not checked" }

local f = trine.fields
f.version = ProtoField.uint8("trine.version", "Version", base.DEC, nil, 0xf0)
f.type = ProtoField.uint8("trine.type", "Type", base.DEC, types, 0x0f)
f.round = ProtoField.uint8("trine.round", "Round", base.DEC, nil, 0xf0)
f.gap = ProtoField.bool("trine.gap", "Gap", 8, nil, 0x08)
f.trailer = ProtoField.bool("trine.trailer", "Trailer", 8, nil, 0x04)
f.extension = ProtoField.bool("trine.extension", "Extension", 8, nil, 0x02)
f.ecn_echo = ProtoField.bool("trine.ecn_echo", "ECN echo", 8, nil, 0x01)
f.session = ProtoField.uint16("trine.session", "Receiver's session", base.DEC)
f.length = ProtoField.uint16("trine.length", "Packet length", base.DEC)
f.kind = ProtoField.uint8("trine.kind", "Request type", base.DEC, kinds)
f.message_bytes = ProtoField.uint24("trine.message_bytes", "Message bytes", base.DEC)
f.asked = ProtoField.uint24("trine.asked", "Packets asked for", base.DEC)
f.number = ProtoField.uint16("trine.number", "Packet number", base.DEC)
f.slot = ProtoField.uint8("trine.slot", "Slot", base.DEC)
f.sequence = ProtoField.uint64("trine.sequence", "Sequence", base.DEC)
f.token = ProtoField.uint64("trine.token", "Token", base.HEX)
f.server_time = ProtoField.string("trine.server_time", "Server time")
f.checksum = ProtoField.uint32("trine.checksum", "Checksum (CRC32C)", base.HEX)
f.checksum_status = ProtoField.uint8("trine.checksum.status", "Checksum status", base.DEC, verdicts)
f.counter = ProtoField.uint32("trine.counter", "Counter, its low bits", base.DEC)
f.tag = ProtoField.bytes("trine.tag", "Tag")
f.tag_status = ProtoField.uint8("trine.tag.status", "Tag status", base.DEC, verdicts)
f.run = ProtoField.uint8("trine.run", "Packets under one tag", base.DEC)
f.key_id = ProtoField.string("trine.key_id", "Key id")
f.handshake = ProtoField.bytes("trine.handshake", "Handshake message")
f.proof = ProtoField.bytes("trine.proof", "Proof")
f.response_in = ProtoField.framenum("trine.response_in", "Response in frame", base.NONE, frametype.RESPONSE)
f.response_to = ProtoField.framenum("trine.response_to", "Request in frame", base.NONE, frametype.REQUEST)
f.response_time = ProtoField.double("trine.response_time", "Seconds since the request")
f.deadline = ProtoField.uint32("trine.deadline_us", "Deadline in microseconds", base.DEC)
f.data = ProtoField.bytes("trine.data", "Data")
f.own_session = ProtoField.uint16("trine.own_session", "Sender's session", base.DEC)
f.credits = ProtoField.uint16("trine.credits", "Credits", base.DEC)
f.slots = ProtoField.uint8("trine.slots", "Slots", base.DEC)
f.features = ProtoField.uint8("trine.features", "Features", base.HEX)
f.mtu = ProtoField.uint16("trine.mtu", "MTU", base.DEC)
f.nonce = ProtoField.uint64("trine.nonce", "Nonce", base.HEX)
f.cluster = ProtoField.uint64("trine.cluster", "Cluster", base.HEX)
f.incarnation = ProtoField.uint64("trine.incarnation", "Incarnation", base.HEX)
f.cookie = ProtoField.uint64("trine.cookie", "Cookie", base.HEX)
f.reason = ProtoField.uint8("trine.reason", "Reason", base.DEC, refusals)
f.theirs = ProtoField.uint64("trine.theirs", "Server's version or cluster", base.HEX)

local malformed = ProtoExpert.new("trine.malformed", "Malformed packet", expert.group.MALFORMED, expert.severity.ERROR)
local cut_short = ProtoExpert.new("trine.cut_short", "The capture has only a part of the packet",
  expert.group.UNDECODED, expert.severity.NOTE)
local bad_checksum = ProtoExpert.new("trine.bad_checksum", "Bad checksum", expert.group.CHECKSUM, expert.severity.ERROR)
local bad_tag = ProtoExpert.new("trine.bad_tag", "Bad tag", expert.group.CHECKSUM, expert.severity.ERROR)
local no_key = ProtoExpert.new("trine.no_key", "Sealed, and the key log does not have its session",
  expert.group.DECRYPTION, expert.severity.NOTE)
trine.experts = { malformed, cut_short, bad_checksum, bad_tag, no_key }
trine.prefs.key_log = Pref.string("Key log", "", "The file that --key-log of a replica or a client has written")

-- 12 bits of mantissa below 4 bits of exponent; all ones means longer than can be said.
local function server_time_text(raw)
  if raw == 0xffff then return "longer than 134 ms" end
  local nanos = bit.lshift(bit.band(raw, 0xfff), bit.rshift(raw, 12))
  return string.format("%d ns", nanos)
end

local function add_terms(body, tree, at)
  tree:add_le(f.credits, body(at, 2))
  tree:add_le(f.slots, body(at + 2, 1))
  tree:add_le(f.features, body(at + 3, 1))
  tree:add_le(f.mtu, body(at + 4, 2))
end

local function readable(bytes)
  return (bytes:gsub("[^%g ]", function(byte) return string.format("\\x%02x", byte:byte()) end))
end

-- What follows in a CONNECT that wishes for a sealed session and returns a cookie.
local function add_wish(rest, tree)
  local named = rest(0, 1):uint()
  local message = rest:len() - 1 - named - PROOF_BYTES
  if named == 0 or message < 1 then
    tree:add_proto_expert_info(malformed, "the wish for a sealed session is cut off")
    return
  end
  tree:add(f.key_id, rest(1, named), readable(rest(1, named):raw()))
  tree:add(f.handshake, rest(1 + named, message))
  tree:add(f.proof, rest(1 + named + message, PROOF_BYTES))
end

local bodies = {
  [CONNECT] = { 40, function(body, tree)
    tree:add_le(f.own_session, body(0, 2))
    add_terms(body, tree, 2)
    tree:add_le(f.nonce, body(8, 8))
    tree:add_le(f.cluster, body(16, 8))
    tree:add_le(f.incarnation, body(24, 8))
    tree:add_le(f.cookie, body(32, 8))
    if body:len() > 40 then add_wish(body(40), tree) end
  end },
  [COOKIE] = { 8, function(body, tree) tree:add_le(f.cookie, body(0, 8)) end },
  [ACCEPT] = { 24, function(body, tree)
    tree:add_le(f.own_session, body(0, 2))
    add_terms(body, tree, 2)
    tree:add_le(f.cluster, body(8, 8))
    tree:add_le(f.incarnation, body(16, 8))
    if body:len() > 24 then tree:add(f.handshake, body(24)) end
  end },
  [REFUSE] = { 16, function(body, tree)
    tree:add_le(f.reason, body(0, 1))
    tree:add_le(f.theirs, body(8, 8))
  end },
}
bodies[DISCONNECT] = { 16, function(body, tree)
  tree:add_le(f.own_session, body(0, 2))
  tree:add_le(f.nonce, body(8, 8))
  if body:len() > 16 then tree:add(f.key_id, body(16), readable(body(16):raw())) end
end }
bodies[PING] = bodies[DISCONNECT]

-- The cryptography of section 9, which the Lua of Wireshark 4.0 does not have. Words are 32 bits, the first byte highest.

local band, bor, bxor, lshift, rshift, ror = bit.band, bit.bor, bit.bxor, bit.lshift, bit.rshift, bit.ror

local function word_at(text, at)
  local a, b, c, d = text:byte(at, at + 3)
  return bor(lshift(a, 24), lshift(b, 16), lshift(c, 8), d)
end

local function word_bytes(...)
  local parts = {}
  for index, word in ipairs({ ... }) do
    parts[index] = string.char(rshift(word, 24), band(rshift(word, 16), 255), band(rshift(word, 8), 255), band(word, 255))
  end
  return table.concat(parts)
end

local unpack_words = table.unpack or unpack

-- SHA-256 and what HKDF needs of it.

-- The first 32 bits of the fraction of a root of each of the first primes.
local function fractions(count, root)
  local found, candidate = {}, 2
  while #found < count do
    local is_prime = true
    for divisor = 2, math.floor(math.sqrt(candidate)) do
      if candidate % divisor == 0 then is_prime = false end
    end
    if is_prime then
      found[#found + 1] = bit.tobit(math.floor((candidate ^ root) % 1 * 4294967296))
    end
    candidate = candidate + 1
  end
  return found
end

local round_constants, start = fractions(64, 1 / 3), fractions(8, 1 / 2)

local function sha256_block(state, block, at)
  local w = {}
  for index = 1, 16 do w[index] = word_at(block, at + 4 * (index - 1)) end
  for index = 17, 64 do
    local x, y = w[index - 15], w[index - 2]
    local s0 = bxor(ror(x, 7), ror(x, 18), rshift(x, 3))
    local s1 = bxor(ror(y, 17), ror(y, 19), rshift(y, 10))
    w[index] = bit.tobit(w[index - 16] + s0 + w[index - 7] + s1)
  end
  local a, b, c, d, e, f_, g, h = unpack_words(state)
  for index = 1, 64 do
    local s1 = bxor(ror(e, 6), ror(e, 11), ror(e, 25))
    local choice = bxor(band(e, f_), band(bit.bnot(e), g))
    local t1 = h + s1 + choice + round_constants[index] + w[index]
    local s0 = bxor(ror(a, 2), ror(a, 13), ror(a, 22))
    local majority = bxor(band(a, b), band(a, c), band(b, c))
    h, g, f_, e, d, c, b, a = g, f_, e, bit.tobit(d + t1), c, b, a, bit.tobit(t1 + s0 + majority)
  end
  local new = { a, b, c, d, e, f_, g, h }
  for index = 1, 8 do state[index] = bit.tobit(state[index] + new[index]) end
end

local function sha256(text)
  local bits = 8 * #text
  local padded = text .. "\128" .. string.rep("\0", (55 - #text) % 64) .. word_bytes(0, bits)
  local state = {}
  for index = 1, 8 do state[index] = start[index] end
  for at = 1, #padded, 64 do sha256_block(state, padded, at) end
  return word_bytes(unpack_words(state))
end

local function masked(key, mask)
  local padded = key .. string.rep("\0", 64 - #key)
  return (padded:gsub(".", function(byte) return string.char(bxor(byte:byte(), mask)) end))
end

-- HKDF-Expand of up to 32 bytes.
local function expand(secret, label, length)
  local inner = sha256(masked(secret, 0x36) .. label .. "\1")
  return sha256(masked(secret, 0x5c) .. inner):sub(1, length)
end

-- AES-128 in its form with four tables.

local sbox, mixed = {}, { {}, {}, {}, {} }

local function doubled(value)
  value = lshift(value, 1)
  return value > 255 and bxor(value, 0x11b) or value
end

do
  local function rotated(value, by) return band(bor(lshift(value, by), rshift(value, 8 - by)), 255) end
  sbox[0] = 0x63
  local p, q = 1, 1
  repeat
    p = bxor(p, doubled(p))
    q = bxor(q, lshift(q, 1))
    q = bxor(q, lshift(q, 2))
    q = band(bxor(q, lshift(q, 4)), 255)
    if q > 127 then q = bxor(q, 9) end
    sbox[p] = bxor(q, rotated(q, 1), rotated(q, 2), rotated(q, 3), rotated(q, 4), 0x63)
  until p == 1
  for value = 0, 255 do
    local s = sbox[value]
    local column = bor(lshift(doubled(s), 24), lshift(s, 16), lshift(s, 8), bxor(s, doubled(s)))
    for index = 1, 4 do mixed[index][value] = ror(column, 8 * (index - 1)) end
  end
end

local function substituted(a, b, c, d)
  return bor(lshift(sbox[rshift(a, 24)], 24), lshift(sbox[band(rshift(b, 16), 255)], 16),
    lshift(sbox[band(rshift(c, 8), 255)], 8), sbox[band(d, 255)])
end

local function aes_schedule(key)
  local words, round = {}, 1
  for index = 1, 4 do words[index] = word_at(key, 4 * index - 3) end
  for index = 5, 44 do
    local word = words[index - 1]
    if index % 4 == 1 then
      word = bit.rol(word, 8)
      word = bxor(substituted(word, word, word, word), lshift(round, 24))
      round = doubled(round)
    end
    words[index] = bxor(words[index - 4], word)
  end
  return words
end

local function aes(keys, a, b, c, d)
  local m1, m2, m3, m4 = mixed[1], mixed[2], mixed[3], mixed[4]
  local function column(w, x, y, z, key)
    return bxor(m1[rshift(w, 24)], m2[band(rshift(x, 16), 255)], m3[band(rshift(y, 8), 255)], m4[band(z, 255)], key)
  end
  a, b, c, d = bxor(a, keys[1]), bxor(b, keys[2]), bxor(c, keys[3]), bxor(d, keys[4])
  for at = 5, 37, 4 do
    a, b, c, d = column(a, b, c, d, keys[at]), column(b, c, d, a, keys[at + 1]), column(c, d, a, b, keys[at + 2]),
      column(d, a, b, c, keys[at + 3])
  end
  return bxor(substituted(a, b, c, d), keys[41]), bxor(substituted(b, c, d, a), keys[42]),
    bxor(substituted(c, d, a, b), keys[43]), bxor(substituted(d, a, b, c), keys[44])
end

-- GCM.

-- The hash key times each power of x.
local function ghash_table(a, b, c, d)
  local powers = {}
  for index = 1, 128 do
    powers[index] = { a, b, c, d }
    local carry = band(d, 1) ~= 0
    d = bor(rshift(d, 1), lshift(c, 31))
    c = bor(rshift(c, 1), lshift(b, 31))
    b = bor(rshift(b, 1), lshift(a, 31))
    a = rshift(a, 1)
    if carry then a = bxor(a, 0xe1000000) end
  end
  return powers
end

local function ghash(powers, text)
  local y = { 0, 0, 0, 0 }
  for at = 1, #text, 16 do
    local a, b, c, d = 0, 0, 0, 0
    for index = 1, 4 do
      local word = bxor(y[index], word_at(text, at + 4 * index - 4))
      for place = 0, 31 do
        if band(rshift(word, 31 - place), 1) ~= 0 then
          local power = powers[32 * index - 31 + place]
          a, b, c, d = bxor(a, power[1]), bxor(b, power[2]), bxor(c, power[3]), bxor(d, power[4])
        end
      end
    end
    y = { a, b, c, d }
  end
  return y
end

local function filled(text) return text .. string.rep("\0", -#text % 16) end

-- Returns the plaintext, and whether the tag is right.
local function gcm_open(key, nonce, covered, sealed, tag)
  local n1, n2, n3 = word_at(nonce, 1), word_at(nonce, 5), word_at(nonce, 9)
  local parts, counter = {}, 1
  for at = 1, #sealed, 16 do
    counter = counter + 1
    local block = word_bytes(aes(key.schedule, n1, n2, n3, counter))
    local bytes = {}
    for index = 1, math.min(16, #sealed - at + 1) do
      bytes[index] = string.char(bxor(block:byte(index), sealed:byte(at + index - 1)))
    end
    parts[#parts + 1] = table.concat(bytes)
  end
  local hashed = ghash(key.powers, filled(covered) .. filled(sealed) .. word_bytes(0, 8 * #covered, 0, 8 * #sealed))
  local mask = { aes(key.schedule, n1, n2, n3, 1) }
  for index = 1, 4 do hashed[index] = bxor(hashed[index], mask[index]) end
  return table.concat(parts), word_bytes(unpack_words(hashed)) == tag
end

-- CRC32C (section 2.4).

local crc_table = {}
for value = 0, 255 do
  local crc = value
  for _ = 1, 8 do
    crc = band(crc, 1) ~= 0 and bxor(rshift(crc, 1), 0x82f63b78) or rshift(crc, 1)
  end
  crc_table[value] = crc
end

local function crc32c(text)
  local crc = -1
  for index = 1, #text do
    crc = bxor(crc_table[band(bxor(crc, text:byte(index)), 255)], rshift(crc, 8))
  end
  return bit.bnot(crc)
end

-- Sessions, as the handshakes of the capture and the key log have them.

-- By nonce, in hexadecimal digits: the secrets of its client's and its server's packets.
local secrets = {}
-- By nonce: client and server (addresses), the keys of each direction.
local sessions = {}
-- Where a packet goes and comes from, and its session field: { session, who sent it }.
local receivers = {}
-- By frame and place: what the first look at a packet found.
local found = {}
-- By session and request number: frames, time and type of a request and its response.
local exchanges = {}
-- What the key log held when it was last read.
local log_bytes = 0

local function from_hex(digits)
  return (digits:gsub("%x%x", function(byte) return string.char(tonumber(byte, 16)) end))
end

local function read_key_log()
  local path = trine.prefs.key_log
  local file = path ~= "" and io.open(path, "r")
  if not file then return end
  local text = file:read("*a")
  file:close()
  if #text == log_bytes then return end
  log_bytes = #text
  for who, nonce, secret in text:gmatch("TRINE_(%u+)_SECRET_0 (%x+) (%x+)") do
    secrets[nonce] = secrets[nonce] or {}
    secrets[nonce][who:lower()] = from_hex(secret)
  end
end

function trine.init()
  secrets, sessions, receivers, found, exchanges, log_bytes = {}, {}, {}, {}, {}, 0
  read_key_log()
end

local function place(to, from, index) return to .. " " .. from .. " " .. index end

local function session_of(nonce, client, server)
  local key = nonce .. client .. server
  sessions[key] = sessions[key] or {
    nonce = nonce, client_address = client, server_address = server,
    client = { highest = 0, keys = {} }, server = { highest = 0, keys = {} },
  }
  return sessions[key]
end

-- The key of an epoch of the packets that `who` sends; nil if the log does not have it.
local function key_of(session, who, epoch)
  local side = session[who]
  if not side.chain then
    if not secrets[session.nonce] then read_key_log() end
    local known = secrets[session.nonce]
    if not known or not known[who] then return nil end
    side.chain = { [0] = known[who] }
  end
  if not side.keys[epoch] then
    for index = 1, epoch do
      side.chain[index] = side.chain[index] or expand(side.chain[index - 1], "trine next epoch", 32)
    end
    local schedule = aes_schedule(expand(side.chain[epoch], "trine packet key", 16))
    side.keys[epoch] = {
      schedule = schedule, powers = ghash_table(aes(schedule, 0, 0, 0, 0)),
      iv = expand(side.chain[epoch], "trine packet iv", 12),
    }
  end
  return side.keys[epoch]
end

-- The counter with these low bits that is nearest to the highest one.
local function nearest(low, highest)
  local best = highest - highest % 4294967296 + low
  for _, other in ipairs({ best - 4294967296, best + 4294967296 }) do
    if other >= 0 and math.abs(other - highest) < math.abs(best - highest) then best = other end
  end
  return best
end

-- Opens bytes that `who` has sealed. Returns the plaintext and a verdict; no plaintext without a key.
local function open(session, who, counter, covered, sealed, tag)
  local key = key_of(session, who, math.floor(counter / 16777216))
  if not key then return nil, NOT_CHECKED end
  local high, low = math.floor(counter / 4294967296), counter % 4294967296
  local nonce = key.iv:sub(1, 4) .. word_bytes(bxor(word_at(key.iv, 5), bit.tobit(high)),
    bxor(word_at(key.iv, 9), bit.tobit(low)))
  local plain, is_good = gcm_open(key, nonce, covered, sealed, tag)
  return plain, is_good and GOOD or BAD
end

local function hex_of(range) return tostring(range:le_uint64():tohex()):lower() end

-- What a packet of a handshake, or a PING, says about sessions.
local function note_session(kind, buffer, at, length, to, from)
  local index = buffer(at + 2, 2):le_uint()
  local body = at + HEADER_BYTES
  if kind == CONNECT and length >= HEADER_BYTES + 40 then
    local session = session_of(hex_of(buffer(body + 8, 8)), from, to)
    receivers[place(from, to, buffer(body, 2):le_uint())] = { session, "server" }
  elseif kind == ACCEPT and length >= HEADER_BYTES + 24 then
    local known = receivers[place(to, from, index)]
    if known then
      local features = buffer(body + 5, 1):uint()
      known[1].is_sealed = band(features, 4) ~= 0
      known[1].are_headers_checked = band(features, 2) ~= 0
      receivers[place(from, to, buffer(body, 2):le_uint())] = { known[1], "client" }
    end
  elseif kind == PING and length > HEADER_BYTES + 16 and not receivers[place(to, from, index)] then
    -- A capture that began later: who sealed it is whose secret opens it.
    local nonce = hex_of(buffer(body + 8, 8))
    if not secrets[nonce] then read_key_log() end
    if not secrets[nonce] then return end
    local covered = buffer(at, length - TAG_BYTES):raw()
    for who, session in pairs({ client = session_of(nonce, from, to), server = session_of(nonce, to, from) }) do
      local counter = buffer(at + 20, 4):le_uint()
      local _, verdict = open(session, who, counter, covered, "", buffer(at + length - TAG_BYTES, TAG_BYTES):raw())
      if verdict == GOOD then
        session.is_sealed = true
        session.client.highest, session.server.highest = counter, counter
        receivers[place(to, from, index)] = { session, who }
        receivers[place(from, to, buffer(body, 2):le_uint())] = { session, who == "client" and "server" or "client" }
      end
    end
  end
end

-- What this packet is about: its session and who sent it, if the capture tells. Looked up once, because indexes are used again.
local function look_up(pinfo, buffer, at, length)
  local key = pinfo.number .. ":" .. at
  if not found[key] then
    local to = tostring(pinfo.dst) .. ":" .. pinfo.dst_port
    local from = tostring(pinfo.src) .. ":" .. pinfo.src_port
    local kind = band(buffer(at, 1):uint(), 0x0f)
    note_session(kind, buffer, at, length, to, from)
    local known = receivers[place(to, from, buffer(at + 2, 2):le_uint())] or {}
    local session, who = known[1], known[2]
    if kind == CONNECT and length >= HEADER_BYTES + 40 then
      session, who = session_of(hex_of(buffer(at + HEADER_BYTES + 8, 8)), from, to), "client"
    end
    local entry = { session = session, who = who, pair = from < to and from .. " " .. to or to .. " " .. from }
    if session then
      entry.counter = nearest(buffer(at + 20, 4):le_uint(), session[who].highest)
    end
    found[key] = entry
  end
  return found[key]
end

-- The verdict on the checksum of a packet without a seal.
local function checksum_verdict(packet, kind, session)
  local summed = packet(0, 20):raw()
  local rest = packet:len() - HEADER_BYTES
  local has_nonce = kind ~= CONNECT and kind ~= PING and kind ~= DISCONNECT and kind ~= RESET
    and kind ~= NOTICE
  if has_nonce and not session then return NOT_CHECKED end
  if has_nonce then summed = from_hex(session.nonce):reverse() .. summed end
  if rest > 0 and not (session and session.are_headers_checked and rest > 256) then
    summed = summed .. packet(HEADER_BYTES, rest):raw()
  end
  return bit.tobit(packet(20, 4):le_uint()) == crc32c(summed) and GOOD or BAD
end

-- Links a request and its response. Returns the request's type, if it is known.
local function link(header, tree, pinfo, entry, kind)
  local owner = entry.session and entry.session.nonce or entry.pair
  local key = owner .. ":" .. tostring(header(12, 6):bytes())
  local exchange = exchanges[key] or {}
  exchanges[key] = exchange
  if kind == REQUEST then
    exchange.request = exchange.request or pinfo.number
    exchange.at = exchange.at or pinfo.rel_ts
    exchange.type = header(6, 1):uint()
    if exchange.response then tree:add(f.response_in, exchange.response):set_generated() end
  elseif kind == RESPONSE then
    exchange.response = exchange.response or pinfo.number
    if exchange.request then
      tree:add(f.response_to, exchange.request):set_generated()
      tree:add(f.response_time, tonumber(tostring(pinfo.rel_ts - exchange.at))):set_generated()
    end
  end
  return exchange.type
end

-- One packet of which `body` is what can be read behind the header (nil: nothing). Returns its one-line description.
local function dissect_packet(header, body, tree, pinfo, entry)
  local kind = band(header(0, 1):uint(), 0x0f)
  local flags = header(1, 1):uint()
  tree:add(f.version, header(0, 1))
  tree:add(f.type, header(0, 1))
  tree:add(f.round, header(1, 1))
  tree:add(f.gap, header(1, 1))
  tree:add(f.trailer, header(1, 1))
  tree:add(f.extension, header(1, 1))
  tree:add(f.ecn_echo, header(1, 1))
  tree:add_le(f.session, header(2, 2))
  tree:add_le(f.length, header(4, 2))
  local text = types[kind] or ("type " .. kind)
  if kind == REQUEST then
    tree:add(f.kind, header(6, 1))
  end
  if kind == REQUEST or kind == RESPONSE then
    local of = link(header, tree, pinfo, entry, kind)
    if of then text = text .. " " .. (kinds[of] or "kind " .. of) end
  end
  if kind == REQUEST_FOR_RESPONSE then
    tree:add_le(f.asked, header(7, 3))
  elseif kind == REQUEST or kind == RESPONSE then
    tree:add_le(f.message_bytes, header(7, 3))
  end
  if kind <= 5 then
    tree:add_le(f.number, header(10, 2))
    local number = header(12, 6):le_uint64()
    local slot = header(12, 1):uint() % 64
    -- The low six bits of 48 are the slot.
    local sequence = number / UInt64(64, 0)
    tree:add(f.slot, header(12, 1), slot)
    tree:add(f.sequence, header(12, 6), sequence)
    text = string.format("%s %s.%d packet %d", text, tostring(sequence), slot, header(10, 2):le_uint())
  else
    tree:add(f.token, header(12, 6), header(12, 6):le_uint64())
  end
  if kind == RESPONSE then
    tree:add(f.server_time, header(18, 2), server_time_text(header(18, 2):le_uint()))
  end
  if not body then return text end
  local at = 0
  if band(flags, 0x02) ~= 0 and body:len() >= EXTENSION_BYTES then
    tree:add_le(f.deadline, body(0, 4))
    at = EXTENSION_BYTES
  end
  local layout = bodies[kind]
  if layout then
    if body:len() >= layout[1] then
      layout[2](body, tree)
    else
      tree:add_proto_expert_info(malformed, "the body is shorter than its type says")
    end
  elseif body:len() > at then
    tree:add(f.data, body(at))
  end
  return text
end

-- A packet without a seal.
local function dissect_plain(packet, root, pinfo, entry)
  local tree = root:add(trine, packet)
  local rest = packet:len() - HEADER_BYTES
  local body = rest > 0 and packet(HEADER_BYTES, rest) or nil
  if not body and bodies[band(packet(0, 1):uint(), 0x0f)] then
    tree:add_proto_expert_info(malformed, "the body is shorter than its type says")
  end
  local text = dissect_packet(packet(0, HEADER_BYTES), body, tree, pinfo, entry)
  tree:add_le(f.checksum, packet(20, 4))
  local verdict = checksum_verdict(packet, band(packet(0, 1):uint(), 0x0f), entry.session)
  tree:add(f.checksum_status, packet(20, 4), verdict):set_generated()
  if verdict == BAD then
    tree:add_proto_expert_info(bad_checksum)
    text = text .. " [bad checksum]"
  end
  tree:append_text(", " .. text)
  return text
end

-- The packets of the run of sealed packets that begins at `at`: { where, bytes without the tag }. Nil if none ends it.
local function run_at(buffer, at)
  local packets = {}
  while at + HEADER_BYTES <= buffer:len() and #packets < RUN_PACKETS_MAX do
    local length = buffer(at + 4, 2):le_uint()
    local is_last = band(buffer(at + 1, 1):uint(), 0x04) ~= 0
    local tag = is_last and TAG_BYTES or 0
    if length < HEADER_BYTES + tag or at + length > buffer:len() then return nil end
    packets[#packets + 1] = { at, length - tag }
    if is_last then return packets end
    at = at + length
  end
  return nil
end

-- A run of sealed packets. Returns its description, and where the next packet begins.
local function dissect_run(buffer, packets, root, pinfo, entry)
  local first, last = packets[1], packets[#packets]
  local tag = buffer(last[1] + last[2], TAG_BYTES)
  local kind = band(buffer(first[1], 1):uint(), 0x0f)
  local is_clear = kind == PING or kind == DISCONNECT
  local headers, sealed = {}, {}
  for index, packet in ipairs(packets) do
    headers[index] = buffer(packet[1], is_clear and packet[2] or HEADER_BYTES):raw()
    local bytes = packet[2] - HEADER_BYTES
    sealed[index] = not is_clear and bytes > 0 and buffer(packet[1] + HEADER_BYTES, bytes):raw() or ""
  end
  local plain, verdict = nil, NOT_CHECKED
  if entry.session then
    plain, verdict = open(entry.session, entry.who, entry.counter, table.concat(headers), table.concat(sealed), tag:raw())
  end
  if verdict == GOOD then
    local side = entry.session[entry.who]
    side.highest = math.max(side.highest, entry.counter)
  end
  local opened = verdict == GOOD and #plain > 0 and ByteArray.new(plain, true):tvb("Opened") or nil
  local texts, taken = {}, 0
  for index, packet in ipairs(packets) do
    local tree = root:add(trine, buffer(packet[1], packet[2] + (index == #packets and TAG_BYTES or 0)))
    local bytes, body = packet[2] - HEADER_BYTES, nil
    if is_clear then
      body = bytes > 0 and buffer(packet[1] + HEADER_BYTES, bytes) or nil
    elseif opened and bytes > 0 then
      body = opened(taken, bytes)
    end
    taken = taken + bytes
    local text = dissect_packet(buffer(packet[1], HEADER_BYTES), body, tree, pinfo, entry)
    tree:add_le(f.counter, buffer(packet[1] + 20, 4))
    if index == #packets then
      tree:add(f.tag, tag)
      tree:add(f.run, #packets):set_generated()
    end
    tree:add(f.tag_status, tag, verdict):set_generated()
    if verdict == BAD then tree:add_proto_expert_info(bad_tag) end
    if verdict == NOT_CHECKED then tree:add_proto_expert_info(no_key) end
    text = text .. (verdict == GOOD and "" or verdict == BAD and " [bad tag]" or " [sealed]")
    tree:append_text(", " .. text)
    texts[#texts + 1] = text
  end
  return table.concat(texts, " | "), last[1] + last[2] + TAG_BYTES
end

function trine.dissector(buffer, pinfo, root)
  pinfo.cols.protocol = "trine"
  local texts, at = {}, 0
  while at < buffer:len() do
    local left = buffer:len() - at
    local length = left >= HEADER_BYTES and buffer(at + 4, 2):le_uint() or 0
    -- A capture with a limit to its frames has less than was sent. That is no fault of the packet.
    local was_left = buffer:reported_len() - at
    if was_left > left and (left < HEADER_BYTES or length > left and length <= was_left) then
      local name = left > 0 and types[band(buffer(at, 1):uint(), 0x0f)] or "packet"
      local tree = root:add(trine, buffer(at), "trine, " .. name .. ", cut short by the capture")
      tree:add_proto_expert_info(cut_short)
      texts[#texts + 1] = name .. " [cut short by the capture]"
      break
    end
    if length < HEADER_BYTES or length > left then
      local tree = root:add(trine, buffer(at), "trine, cut off")
      tree:add_proto_expert_info(malformed, "what is left is shorter than a packet")
      texts[#texts + 1] = "[malformed]"
      break
    end
    local kind = band(buffer(at, 1):uint(), 0x0f)
    local entry = look_up(pinfo, buffer, at, length)
    local is_of_handshake = kind == RESET or (kind >= CONNECT and kind <= REFUSE)
    -- Packets of sessions without a seal never have the flag TRAILER.
    local packets = not is_of_handshake and run_at(buffer, at)
    local text
    if packets then
      text, at = dissect_run(buffer, packets, root, pinfo, entry)
    else
      text = dissect_plain(buffer(at, length), root, pinfo, entry)
      at = at + length
    end
    texts[#texts + 1] = text
  end
  pinfo.cols.info = table.concat(texts, " | ")
  return buffer:len()
end

-- A first packet of version 1 with a known type and a plausible length.
local function is_trine(buffer)
  if buffer:len() < HEADER_BYTES then return false end
  local first = buffer(0, 1):uint()
  if bit.rshift(first, 4) ~= VERSION or not types[bit.band(first, 0x0f)] then return false end
  local length = buffer(4, 2):le_uint()
  return length >= HEADER_BYTES and length <= buffer:reported_len()
end

trine:register_heuristic("udp", function(buffer, pinfo, root)
  if not is_trine(buffer) then return false end
  trine.dissector(buffer, pinfo, root)
  return true
end)

-- The ports of `trine up`, for packets that the heuristic would leave to others.
for port = 7471, 7473 do
  DissectorTable.get("udp.port"):add(port, trine)
end
