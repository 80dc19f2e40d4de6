/**
 * Events per second: made, signed, parsed, verified, against what bare Ed25519 and SHA-256 allow in the same run. Every
 * row is the best of several rounds of fixed length, in one thread unless it says otherwise.
 */
import { createPrivateKey, generateKeyPairSync, hash, sign } from 'node:crypto';
import {
  buildEvent,
  canonicalJson,
  clientEventView,
  eventFromRow,
  hasValidContentHash,
  parsePdu,
  redactEvent,
  roomVersionRules,
  signEvent,
  SigningKey,
  verifyEventSignatures,
  type EventDraft,
  type RoomVersionRules,
} from '@rookery/events';

const roundMs = 400;
const rounds = 5;

interface Row {
  readonly what: string;
  readonly perSecond: number;
}

function measure(what: string, batch: () => void, perBatch: number): Row {
  let best = 0;
  for (let round = 0; round < rounds; round++) {
    const start = performance.now();
    let done = 0;
    while (performance.now() - start < roundMs) {
      batch();
      done += perBatch;
    }
    best = Math.max(best, (done * 1000) / (performance.now() - start));
  }
  return { what, perSecond: best };
}

async function measureAsync(what: string, batch: () => Promise<unknown>, perBatch: number): Promise<Row> {
  let best = 0;
  for (let round = 0; round < rounds; round++) {
    const start = performance.now();
    let done = 0;
    while (performance.now() - start < roundMs) {
      await batch();
      done += perBatch;
    }
    best = Math.max(best, (done * 1000) / (performance.now() - start));
  }
  return { what, perSecond: best };
}

const rules = roomVersionRules('12') as RoomVersionRules;
const key = SigningKey.generate('bench');
const server = 'bench.example.org';

/** A message as clients send it: about 1 kB as a PDU. */
function draft(n: number): EventDraft {
  const id = (i: number): string => `$${hash('sha256', `${n}/${i}`, 'base64url')}`;
  return {
    roomId: `!${hash('sha256', 'room', 'base64url')}`,
    type: 'm.room.message',
    sender: `@somebody:${server}`,
    content: {
      msgtype: 'm.text',
      body: `> <@other:example.org> how are you?\n\nMessage ${n}: all is well, thank you — und dir? 🙂`,
      format: 'org.matrix.custom.html',
      formatted_body: `<blockquote>how are you?</blockquote><p>Message ${n}: all is well, thank you — und dir? 🙂</p>`,
      'm.mentions': { user_ids: ['@other:example.org'] },
      'm.relates_to': { 'm.in_reply_to': { event_id: id(0) } },
    },
    originServerTs: 1_700_000_000_000 + n,
    depth: 1000 + n,
    prevEventIds: [id(1)],
    authEventIds: [id(2), id(3), id(4)],
  };
}

const drafts = Array.from({ length: 200 }, (_, n) => draft(n));
const built = drafts.map((one) => buildEvent(one, rules));
const signed = built.map((event) => signEvent(event, server, key));
const texts = signed.map((event) => JSON.stringify(event.pdu));
const values = texts.map((text) => JSON.parse(text) as object);
// Results go somewhere, so that no work is optimized away.
const sink: unknown[] = [];
const known = { key: key.verifyKey, validUntilTs: Number.MAX_SAFE_INTEGER };

// The floor: the same bytes through the primitives alone.
const bareKey = createPrivateKey(generateKeyPairSync('ed25519').privateKey.export({ format: 'pem', type: 'pkcs8' }));
const whole = built.map((event) => canonicalJson(event.pdu));
const redacted = built.map((event) => canonicalJson(redactEvent(event).pdu));

const bare = measure(
  'bare Ed25519 signature and two SHA-256, same bytes',
  () => {
    for (let i = 0; i < whole.length; i++) {
      hash('sha256', whole[i] as string, 'base64');
      hash('sha256', redacted[i] as string, 'base64url');
      sign(null, Buffer.from(redacted[i] as string), bareKey);
    }
  },
  whole.length,
);
const made = measure(
  'event built, hashed and signed',
  () => drafts.forEach((one) => signEvent(buildEvent(one, rules), server, key)),
  drafts.length,
);
const rows: Row[] = [
  bare,
  made,
  measure(
    'event built and hashed (no signature)',
    () => drafts.forEach((one) => buildEvent(one, rules)),
    drafts.length,
  ),
  measure('canonical JSON of a PDU', () => values.forEach((value) => canonicalJson(value)), values.length),
  measure(
    'JSON.stringify of a PDU, for comparison',
    () => values.forEach((value) => JSON.stringify(value)),
    values.length,
  ),
  measure(
    'PDU parsed from text, checked, id computed',
    () => texts.forEach((text) => parsePdu(text, rules)),
    texts.length,
  ),
  measure('content hash checked', () => signed.forEach((event) => hasValidContentHash(event)), signed.length),
  measure(
    'event loaded from a row',
    () => texts.forEach((text, i) => eventFromRow(text, (signed[i] as { eventId: string }).eventId, rules)),
    texts.length,
  ),
  measure('JSON.parse of a row, for comparison', () => texts.forEach((text) => JSON.parse(text)), texts.length),
  measure(
    'event turned into a client event',
    () => signed.forEach((event) => (sink[0] = clientEventView(event))),
    signed.length,
  ),
  measure('event redacted', () => signed.forEach((event) => redactEvent(event)), signed.length),
  await measureAsync(
    'signatures verified, thread pool',
    () => Promise.all(signed.map((event) => verifyEventSignatures(event, () => known))),
    signed.length,
  ),
];

console.log(
  `Events, room version ${rules.version}, PDU of ${Buffer.byteLength(texts[0] as string)} bytes, Node ${process.version}\n`,
);
console.log('| operation | per second | µs each |\n|---|---:|---:|');
for (const { what, perSecond } of rows) {
  console.log(`| ${what} | ${Math.round(perSecond).toLocaleString('en-US')} | ${(1e6 / perSecond).toFixed(2)} |`);
}
console.log(
  `\nBuilt, hashed and signed at ${((100 * made.perSecond) / bare.perSecond).toFixed(0)} % of the bare primitives.`,
);

await import('./state-res.bench.js');
