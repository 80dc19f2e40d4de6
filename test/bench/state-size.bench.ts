/**
 * How many bytes the state of a room takes on disk: for each member of a room that is joined, for each change of state after that, for
 * each change in forks that are merged again, and what is left once its history is purged. A room of a server that is played here is
 * joined by this server and, where there is one, by a server of another make; both get the same PDUs. Both write SQLite; what is counted
 * are the pages of the tables of state groups with their indexes, which are called the same in both.
 *
 * `npm run bench -- state-size [members...] [--alone]`. The other server is the one that `npm run test:interop` installs.
 */
import type { RoomEvent } from '@rookery/events';
import { eventually, makeTestAuthority } from '@rookery/testing';
import Sqlite from 'better-sqlite3';
import { existsSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Agent } from 'undici';
import { type Peer, preparePeer, registrationSecret } from '../interop/peers.js';
import { LargeRoom, LargeRoomServer } from './large-room.js';
import { call, register, table } from './support.js';
import { deliverAll } from './transactions.js';

const [changes, forks, branches, eachBranch] = [400, 50, 2, 3];
const patienceMs = 1_800_000;
const stateTables = ['state_groups', 'state_groups_state', 'state_group_edges', 'event_to_state_groups'];

const python = join(process.cwd(), 'node_modules', '.cache', 'interop', 'bin', 'python');
if (existsSync(python)) process.env['INTEROP_PYTHON'] ??= python;
const isAlone = process.argv.includes('--alone') || process.env['INTEROP_PYTHON'] === undefined;
if (isAlone) console.log('Without a server of another make (`npm run test:interop` installs one).');
const named = process.argv.slice(2).filter((each) => !each.startsWith('-'));
const sizes = named.length > 0 ? named.map(Number) : [10, 1_000, 10_000];

const authority = makeTestAuthority();
const folder = await mkdtemp(join(tmpdir(), 'rookery-bench-state-'));
const server = await LargeRoomServer.start(folder, false, authority);
const { played } = server;
const dispatcher = new Agent({ connect: { ca: authority.cert } });

interface Sizes {
  readonly stateBytes: number;
  readonly groups: number;
}

/** What the tables of state take now, indexes included. */
function sizesOf({ folder: home }: Peer): Sizes {
  const db = new Sqlite(join(home, 'homeserver.db'), { readonly: true });
  try {
    const { bytes, groups } = db
      .prepare<string[], { bytes: number; groups: number }>(
        `SELECT SUM(s.pgsize) AS bytes, (SELECT COUNT(*) FROM state_groups) AS groups FROM sqlite_master m
         JOIN dbstat s ON s.name = m.name WHERE m.tbl_name IN (${stateTables.map(() => '?').join()})`,
      )
      .get(...stateTables)!;
    return { stateBytes: bytes, groups };
  } finally {
    db.close();
  }
}

async function measure(peers: readonly Peer[], members: number): Promise<(string | number)[][]> {
  const room = await LargeRoom.make(played, { members });
  server.room = room;
  const path = encodeURIComponent(room.roomId);
  const inRoom = `/_matrix/client/v3/rooms/${path}`;
  const tokens = new Map<Peer, string>();
  /** The answer once it is one, and `isRight`. */
  const asked = <T>(each: Peer, url: string, isRight: (answer: T) => boolean = () => true): Promise<unknown> =>
    eventually(async () => {
      const answer = await call<T>(each.baseUrl, 'GET', url, tokens.get(each)).catch(() => undefined);
      return answer !== undefined && isRight(answer);
    }, patienceMs);
  // Each transaction once all before it are there: the other make forgets what piles up for a room and asks for it later.
  const give = (each: Peer, events: readonly RoomEvent[]): Promise<void> =>
    deliverAll(played, { baseUrl: `https://${each.name}`, name: each.name, dispatcher }, events, ({ eventId }) =>
      asked(each, `${inRoom}/event/${encodeURIComponent(eventId)}`),
    );
  const look = (): Map<Peer, Sizes> => new Map(peers.map((each) => [each, sizesOf(each)]));

  const before = look();
  for (const each of peers) {
    const { token } = await register(each.baseUrl, `reader${members}`, true, registrationSecret);
    tokens.set(each, token);
    const via = encodeURIComponent(played.name);
    const url = `/_matrix/client/v3/join/${path}?server_name=${via}&via=${via}`;
    await call(each.baseUrl, 'POST', url, token, {});
    room.goOn(room.joins.at(-1)!);
  }
  for (const [n, each] of peers.entries()) {
    // Who came first hears of who came later; only then do both go on from the same event.
    await give(each, room.joins.slice(n + 1));
    await asked<{ joined: object }>(
      each,
      `${inRoom}/joined_members`,
      ({ joined }) => Object.keys(joined).length === members + peers.length,
    );
  }
  const afterJoin = look();

  const later = Array.from({ length: changes }, (_, n) => {
    const userId = `@later${n}:${played.name}`;
    const content = { membership: 'join', displayname: `Later member ${n}` };
    return room.goOn(room.make({ type: 'm.room.member', stateKey: userId, sender: userId, content }));
  });
  for (const each of peers) await give(each, later);
  const afterChanges = look();

  const forked: RoomEvent[] = [];
  for (let n = 0; n < forks; n++) {
    const ends = Array.from({ length: branches }, (_, branch) => {
      let prev = room.head;
      for (let step = 0; step < eachBranch; step++) {
        const content = { topic: `Fork ${n}, branch ${branch}, step ${step}` };
        forked.push((prev = room.make({ type: 'm.room.topic', stateKey: '', content, prev })));
      }
      return prev;
    });
    const content = { msgtype: 'm.text', body: `Merge ${n}` };
    forked.push(room.goOn(room.make({ type: 'm.room.message', content, prev: ends })));
  }
  for (const each of peers) await give(each, forked);
  const afterForks = look();

  for (const each of peers) {
    const body = { delete_local_events: true, purge_up_to_event_id: forked.at(-1)!.eventId };
    const url = `/_synapse/admin/v1/purge_history/${path}`;
    const { purge_id: id } = await call<{ purge_id: string }>(each.baseUrl, 'POST', url, tokens.get(each), body);
    await asked<{ status: string }>(
      each,
      `/_synapse/admin/v1/purge_history_status/${id}`,
      ({ status }) => status === 'complete',
    );
  }
  const afterPurge = look();

  return peers.map((each) => {
    const per = (to: Map<Peer, Sizes>, from: Map<Peer, Sizes>, count: number): string =>
      Math.round((to.get(each)!.stateBytes - from.get(each)!.stateBytes) / count).toString();
    const groups = (at: Map<Peer, Sizes>): string => (at.get(each)!.groups - before.get(each)!.groups).toString();
    return [
      ...[each.kind, members.toString(), per(afterJoin, before, members), per(afterChanges, afterJoin, changes)],
      ...[per(afterForks, afterChanges, forks * branches * eachBranch), groups(afterForks)],
      ...[per(afterPurge, before, members + changes), groups(afterPurge)],
    ];
  });
}

const peers: Peer[] = [];
const rows: (string | number)[][] = [];
try {
  for (const kind of isAlone ? (['rookery'] as const) : (['rookery', 'synapse'] as const)) {
    const each = await preparePeer(kind, authority);
    peers.push(each);
    await each.start();
  }
  for (const members of sizes) rows.push(...(await measure(peers, members)));
} finally {
  for (const each of peers) await each.remove();
  server.stop();
  await rm(folder, { recursive: true, force: true });
}
table('Bytes of state on disk', [
  [
    ...['server', 'members', 'each, after the join', 'each change', 'each change in forks', 'groups'],
    ...['each member, purged', 'groups, purged'],
  ],
  ...rows,
]);
process.exit(0);
