// `npm run bench -- sliding-sync`: what simplified sliding sync costs a user in a thousand rooms.
import { call, percentiles, register, room, startServer, table, type BenchUser } from './support.js';

interface Answer {
  readonly pos: string;
  readonly rooms: object;
}

const path = '/_matrix/client/unstable/org.matrix.simplified_msc3575/sync';
const ask = (baseUrl: string, user: BenchUser, last: number, pos?: string): Promise<Answer> =>
  call(baseUrl, 'POST', `${path}?timeout=0${pos === undefined ? '' : `&pos=${encodeURIComponent(pos)}`}`, user.token, {
    conn_id: 'bench',
    lists: {
      all: {
        ranges: [[0, last]],
        timeline_limit: 1,
        required_state: [
          ['m.room.create', ''],
          ['m.room.encryption', ''],
          ['m.room.member', '$LAZY'],
          ['m.room.member', '$ME'],
        ],
      },
    },
    extensions: { account_data: { enabled: true }, receipts: { enabled: true }, typing: { enabled: true } },
  });

const rounds = 30;
const server = await startServer();
const { baseUrl } = server;
const writer = await register(baseUrl, 'writer');
const reader = await register(baseUrl, 'reader');
const rooms: string[] = [];
for (let n = 0; n < 1_000; n++) rooms.push(await room(baseUrl, [writer, reader]));

const timed = async (fn: () => Promise<Answer>): Promise<readonly [Answer, number]> => {
  const before = performance.now();
  const answer = await fn();
  return [answer, performance.now() - before];
};
const measured = new Map<string, number[]>();
const note = (name: string, ms: number): void => {
  measured.set(name, [...(measured.get(name) ?? []), ms]);
};

const [, cold] = await timed(() => ask(baseUrl, reader, 19));
let messages = 0;
for (let round = 0; round < rounds; round++) {
  const [first, firstMs] = await timed(() => ask(baseUrl, reader, 19));
  note('first answer, window of 20', firstMs);
  const [next, emptyMs] = await timed(() => ask(baseUrl, reader, 19, first.pos));
  note('nothing new', emptyMs);
  messages += 1;
  const target = rooms[round % rooms.length] as string;
  await call(baseUrl, 'PUT', `/_matrix/client/v3/rooms/${target}/send/m.room.message/${messages}`, writer.token, {
    msgtype: 'm.text',
    body: `message ${messages}`,
  });
  const [, newsMs] = await timed(() => ask(baseUrl, reader, 19, next.pos));
  note('one new message', newsMs);
}
for (let round = 0; round < 5; round++) {
  const [, ms] = await timed(() => ask(baseUrl, reader, 999));
  note('first answer, all 1,000 rooms', ms);
}
table('Sliding sync of a user in 1,000 rooms, ms', [
  ['', 'p50', 'p95', 'p99'],
  ['very first answer, nothing in memory', cold, cold, cold],
  ...[...measured].map(([name, times]) => [name, ...Object.values(percentiles(times))]),
]);
await server.stop();
process.exit(0);
