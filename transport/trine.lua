-- Wireshark dissector of the packet protocol, version 1 (PROTOCOL.md sections 2 and 3).
--
--   wireshark -X lua_script:transport/trine.lua capture.pcapng
--   tshark -X lua_script:transport/trine.lua -r capture.pcapng -Y 'trine.type == 1'
--
-- UDP packets are recognized by their contents, whatever their port. A datagram may hold several
-- packets back to back; each gets its own tree.

local trine = Proto("trine", "trine RPC transport")

local HEADER_BYTES = 24
local EXTENSION_BYTES = 8
local VERSION = 1

local types = {
  [1] = "REQUEST", [2] = "RESPONSE", [3] = "CREDIT RETURN", [4] = "REQUEST FOR RESPONSE",
  [5] = "BUSY", [7] = "RESET", [8] = "CONNECT", [9] = "COOKIE", [10] = "ACCEPT", [11] = "REFUSE",
  [12] = "DISCONNECT", [13] = "DISCONNECTED", [14] = "PING", [15] = "PONG",
}
local REQUEST, RESPONSE, REQUEST_FOR_RESPONSE = 1, 2, 4
local CONNECT, COOKIE, ACCEPT, REFUSE, DISCONNECT, PING = 8, 9, 10, 11, 12, 14
local refusals = { [1] = "version mismatch", [2] = "wrong cluster", [3] = "full" }

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
f.kind = ProtoField.uint8("trine.kind", "Request type", base.DEC)
f.message_bytes = ProtoField.uint24("trine.message_bytes", "Message bytes", base.DEC)
f.asked = ProtoField.uint24("trine.asked", "Packets asked for", base.DEC)
f.number = ProtoField.uint16("trine.number", "Packet number", base.DEC)
f.slot = ProtoField.uint8("trine.slot", "Slot", base.DEC)
f.sequence = ProtoField.uint64("trine.sequence", "Sequence", base.DEC)
f.token = ProtoField.uint64("trine.token", "Token", base.HEX)
f.server_time = ProtoField.string("trine.server_time", "Server time")
f.checksum = ProtoField.uint32("trine.checksum", "Checksum (CRC32C)", base.HEX)
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
trine.experts = { malformed }

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

local bodies = {
  [CONNECT] = { 40, function(body, tree)
    tree:add_le(f.own_session, body(0, 2))
    add_terms(body, tree, 2)
    tree:add_le(f.nonce, body(8, 8))
    tree:add_le(f.cluster, body(16, 8))
    tree:add_le(f.incarnation, body(24, 8))
    tree:add_le(f.cookie, body(32, 8))
  end },
  [COOKIE] = { 8, function(body, tree) tree:add_le(f.cookie, body(0, 8)) end },
  [ACCEPT] = { 24, function(body, tree)
    tree:add_le(f.own_session, body(0, 2))
    add_terms(body, tree, 2)
    tree:add_le(f.cluster, body(8, 8))
    tree:add_le(f.incarnation, body(16, 8))
  end },
  [REFUSE] = { 16, function(body, tree)
    tree:add_le(f.reason, body(0, 1))
    tree:add_le(f.theirs, body(8, 8))
  end },
}
bodies[DISCONNECT] = { 16, function(body, tree)
  tree:add_le(f.own_session, body(0, 2))
  tree:add_le(f.nonce, body(8, 8))
end }
bodies[PING] = bodies[DISCONNECT]

-- One packet; returns its one-line description.
local function dissect_packet(packet, tree)
  local kind = bit.band(packet(0, 1):uint(), 0x0f)
  local flags = packet(1, 1):uint()
  tree:add(f.version, packet(0, 1))
  tree:add(f.type, packet(0, 1))
  tree:add(f.round, packet(1, 1))
  tree:add(f.gap, packet(1, 1))
  tree:add(f.trailer, packet(1, 1))
  tree:add(f.extension, packet(1, 1))
  tree:add(f.ecn_echo, packet(1, 1))
  tree:add_le(f.session, packet(2, 2))
  tree:add_le(f.length, packet(4, 2))
  local text = types[kind] or ("type " .. kind)
  if kind == REQUEST then
    tree:add(f.kind, packet(6, 1))
    text = text .. " kind " .. packet(6, 1):uint()
  end
  if kind == REQUEST_FOR_RESPONSE then
    tree:add_le(f.asked, packet(7, 3))
  elseif kind == REQUEST or kind == RESPONSE then
    tree:add_le(f.message_bytes, packet(7, 3))
  end
  if kind <= 5 then
    tree:add_le(f.number, packet(10, 2))
    local number = packet(12, 6):le_uint64()
    local slot = packet(12, 1):uint() % 64
    -- The low six bits of 48 are the slot.
    local sequence = number / UInt64(64, 0)
    tree:add(f.slot, packet(12, 1), slot)
    tree:add(f.sequence, packet(12, 6), sequence)
    text = string.format("%s %s.%d packet %d", text, tostring(sequence), slot, packet(10, 2):le_uint())
  else
    tree:add(f.token, packet(12, 6), packet(12, 6):le_uint64())
  end
  if kind == RESPONSE then
    tree:add(f.server_time, packet(18, 2), server_time_text(packet(18, 2):le_uint()))
  end
  tree:add_le(f.checksum, packet(20, 4))
  local at = HEADER_BYTES
  if bit.band(flags, 0x02) ~= 0 and packet:len() >= at + EXTENSION_BYTES then
    tree:add_le(f.deadline, packet(at, 4))
    at = at + EXTENSION_BYTES
  end
  local body = bodies[kind]
  if body then
    if packet:len() - at >= body[1] then
      body[2](packet(at), tree)
    else
      tree:add_proto_expert_info(malformed, "the body is shorter than its type says")
    end
  elseif packet:len() > at then
    tree:add(f.data, packet(at))
  end
  return text
end

function trine.dissector(buffer, pinfo, root)
  pinfo.cols.protocol = "trine"
  local texts, at = {}, 0
  while at < buffer:len() do
    local left = buffer:len() - at
    local length = left >= HEADER_BYTES and buffer(at + 4, 2):le_uint() or 0
    if length < HEADER_BYTES or length > left then
      local tree = root:add(trine, buffer(at), "trine, cut off")
      tree:add_proto_expert_info(malformed, "what is left is shorter than a packet")
      texts[#texts + 1] = "[malformed]"
      break
    end
    local packet = buffer(at, length)
    local tree = root:add(trine, packet)
    local text = dissect_packet(packet, tree)
    tree:append_text(", " .. text)
    texts[#texts + 1] = text
    at = at + length
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
  return length >= HEADER_BYTES and length <= buffer:len()
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
