import { signEvent, SigningKey } from '@rookery/events';
import type { JsonObject } from '@rookery/matrix-types';
import { describeWithRedis, eventually, freePort, makeTestAuthority, TestRedis } from '@rookery/testing';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { emptyDatabase, ServerProcess } from '../../support/server-process.js';
import { ElsewhereRoom } from '../federation/elsewhere-room.js';
import { PlayedServer } from '../federation/federation-world.js';

interface Answer {
  readonly status: number;
  readonly body: JsonObject;
}
interface Sync {
  readonly next_batch: string;
  readonly rooms?: {
    readonly join?: Record<
      string,
      { readonly state: { readonly events: JsonObject[] }; readonly timeline: { readonly events: JsonObject[] } }
    >;
  };
  readonly device_lists?: { readonly changed?: string[] };
}

const name = 'home.test';
/** Members of each of the two servers: more than are stored at once. */
const membersEach = 60;
/** Within which another process goes on, from the moment at which one is killed, milliseconds: 6 s are until it is missed, the rest is for slow machines. */
const takeOverMs = 20_000;

describeWithRedis(
  'A room of which not all members are known, and of whose server the process is killed that fetches them',
  () => {
    let folder: string;
    let redis: TestRedis;
    let database: Awaited<ReturnType<typeof emptyDatabase>>;
    /** One writes, the next takes its place, and the last, which never writes, is where the client is. */
    let processes: ServerProcess[];
    let far: PlayedServer;
    /** The other server whose users are in the room: it tells its keys when it is let. */
    let quiet: PlayedServer;
    const closing: (() => Promise<unknown>)[] = [];
    let token = '';
    let transactions = 0;

    beforeEach(async () => {
      folder = await mkdtemp(join(tmpdir(), 'rookery-joins-'));
      redis = await TestRedis.start();
      database = await emptyDatabase('postgres', folder);
      const authority = makeTestAuthority();
      const played = async (seed: number): Promise<PlayedServer> => {
        const port = await freePort();
        const server = new PlayedServer(`localhost:${port}`, SigningKey.fromSeed('k', new Uint8Array(32).fill(seed)));
        closing.push((await server.listen(authority.issue(['localhost']), port)).close);
        return server;
      };
      far = await played(1);
      quiet = await played(2);
      await writeFile(join(folder, 'ca.pem'), authority.cert);
      const settings = {
        ...{ server_name: name, ip_range_whitelist: ['127.0.0.0/8', '::1/128'] },
        ...{ signing_key_path: join(folder, 'signing.key'), media_store_path: join(folder, 'media') },
        ...{ federation_custom_ca_list: [join(folder, 'ca.pem')], database: database.section },
        redis: { enabled: true, host: '127.0.0.1', port: redis.port },
        ...{ instance_map: { main: { host: '127.0.0.1', port: 9093 } }, worker_replication_secret: 'shared' },
      };
      const port = await freePort();
      const resources = [{ names: ['client', 'federation'] }];
      const worker = {
        ...{ worker_app: 'synapse.app.generic_worker', worker_name: 'reader', listeners: [] },
        worker_listeners: [{ port, bind_addresses: ['127.0.0.1'], type: 'http', resources }],
      };
      processes = [
        await ServerProcess.prepare('sqlite', settings),
        await ServerProcess.prepare('sqlite', settings),
        await ServerProcess.prepare('sqlite', { ...settings, ...worker }),
      ];
      Object.assign(processes[2]!, { baseUrl: `http://127.0.0.1:${port}` });
      // One makes the tables.
      await processes[0]!.start();
      await Promise.all(processes.slice(1).map((process) => process.start()));
      const registration = { username: 'alice', password: 'a long password', auth: { type: 'm.login.dummy' } };
      token = String((await ask('POST', '/register', registration)).body['access_token']);
    });
    afterEach(async () => {
      for (const process of processes) await process.remove();
      for (const close of closing.splice(0)) await close();
      await redis.stop();
      await database.drop();
      await rm(folder, { recursive: true, force: true });
    });

    const send = async (method: string, uri: string, authorization: string, body?: object): Promise<Answer> => {
      const answer = await fetch(`${processes[2]!.baseUrl}${uri}`, {
        ...{ method, headers: { authorization } },
        ...(body && { body: JSON.stringify(body) }),
      });
      return { status: answer.status, body: (await answer.json()) as JsonObject };
    };
    const ask = (method: string, path: string, body?: object): Promise<Answer> =>
      send(method, `/_matrix/client/v3${path}`, `Bearer ${token}`, body);
    /** What is answered with 200, however often it takes while nobody writes. */
    const answered = async <T = JsonObject>(method: string, path: string, body?: object): Promise<T> => {
      let last: unknown;
      try {
        return await eventually(async () => {
          const answer = await ask(method, path, body).catch((error: unknown) => void (last = String(error)));
          last = answer ?? last;
          return answer?.status === 200 ? (answer.body as T) : undefined;
        });
      } catch {
        throw new Error(
          `${method} ${path}: ${JSON.stringify(last)}\n${processes.map(({ output }) => output).join('\n')}`,
        );
      }
    };
    const say = (roomId: string, body: string): Promise<unknown> =>
      answered('PUT', `/rooms/${roomId}/send/m.room.message/${++transactions}`, { msgtype: 'm.text', body });
    const lazily = encodeURIComponent(JSON.stringify({ room: { state: { lazy_load_members: true } } }));

    const member = (room: ElsewhereRoom, of: PlayedServer, localpart: string): string => {
      const sender = `@${localpart}:${of.name}`;
      const content = { membership: 'join' };
      const event = room.make({ type: 'm.room.member', stateKey: sender, sender, content, unsigned: true });
      room.take(signEvent(event, of.name, of.key));
      return sender;
    };

    it.each(['before any has come', 'when some are stored'])('comes to have all of them: %s', async (when) => {
      let release = (): void => {};
      const released = new Promise<void>((resolve) => (release = resolve));
      quiet.keys = async () => {
        if (when === 'when some are stored') await released;
        return quiet.statement();
      };
      const room = new ElsewhereRoom(far, '11');
      room.add({ type: 'm.room.encryption', stateKey: '', content: { algorithm: 'm.megolm.v1.aes-sha2' } });
      const members = [far, quiet].flatMap((of) =>
        Array.from({ length: membersEach }, (_, n) => member(room, of, `member${n}`)),
      );
      const [gone = '', stays = ''] = members;
      const authOf = (sender: string): string[] =>
        [...room.state.values()]
          .filter(({ type, stateKey }) => /create|power_levels/.test(type) || stateKey === sender)
          .map(({ eventId }) => eventId);
      const authOfGone = authOf(gone);
      room.add({ type: 'm.room.member', stateKey: gone, sender: gone, content: { membership: 'leave' } });
      room.lies.set('send_join', (honest) => ({
        ...honest,
        state: (honest['state'] as JsonObject[]).filter(({ state_key: key }) => !members.includes(String(key))),
        members_omitted: true,
        servers_in_room: [far.name, quiet.name],
      }));
      let asked = 0;
      room.lies.set('state_ids', async (honest) => {
        asked++;
        if (when === 'before any has come') await released;
        return honest;
      });
      const told: unknown[] = [];
      room.lies.set('send', (_, request) => {
        const { pdus = [] } = JSON.parse(request.body) as { pdus?: { content: JsonObject }[] };
        // Who was killed may not have noted what was taken: then it is told again.
        for (const { body } of pdus.map(({ content }) => content)) if (body && !told.includes(body)) told.push(body);
        return { pdus: {} };
      });

      const { next_batch: since } = await answered<Sync>('GET', '/sync?timeout=0');
      expect((await ask('POST', `/join/${room.roomId}?via=${far.name}`, {})).status).toBe(200);
      await say(room.roomId, 'before');
      // Of one who has left, which nobody here can tell yet, and of one who is there.
      const content = { msgtype: 'm.text', body: 'hello' };
      const wrong = room.make({ type: 'm.room.message', sender: gone, content, auth: authOfGone });
      const right = room.make({ type: 'm.room.message', sender: stays, content, auth: authOf(stays) });
      const uri = '/_matrix/federation/v1/send/1';
      const transaction = { origin: far.name, origin_server_ts: Date.now(), pdus: [wrong.pdu, right.pdu] };
      await send('PUT', uri, far.authorization('PUT', uri, name, transaction as JsonObject), transaction);
      const statusOf = async ({ eventId }: { eventId: string }): Promise<number> =>
        (await ask('GET', `/rooms/${room.roomId}/event/${encodeURIComponent(eventId)}`)).status;
      await eventually(async () => (await statusOf(right)) === 200);
      expect(await statusOf(wrong)).toBe(200);
      const isAsked = (): boolean => quiet.asked.some(({ url }) => url === '/_matrix/key/v2/server');
      await eventually(() => asked > 0 && (when === 'before any has come' || isAsked()));

      const askedBefore = asked;
      const killedMs = performance.now();
      await processes[0]!.stop('SIGKILL');
      const goesOn = eventually(() => asked > askedBefore).then(() => performance.now() - killedMs);
      // Reads and says meanwhile.
      const lazy = await answered<Sync>('GET', `/sync?timeout=0&filter=${lazily}`);
      expect(lazy.rooms?.join).toHaveProperty([room.roomId]);
      const meanwhile = await answered<Sync>('GET', '/sync?timeout=0');
      expect(meanwhile.rooms?.join ?? {}).not.toHaveProperty([room.roomId]);
      await say(room.roomId, 'meanwhile');
      expect(await goesOn).toBeLessThan(takeOverMs);
      expect((await answered<Sync>('GET', '/sync?timeout=0')).rooms?.join ?? {}).not.toHaveProperty([room.roomId]);
      release();

      const everybody = [`@alice:${name}`, room.creator, ...members.filter((userId) => userId !== gone)].sort();
      const { joined } = await answered<{ joined: object }>('GET', `/rooms/${room.roomId}/joined_members`);
      expect(Object.keys(joined).sort()).toEqual(everybody);
      expect([await statusOf(wrong), await statusOf(right)]).toEqual([404, 200]);
      await say(room.roomId, 'after');
      await eventually(() => told.includes('after'));
      expect(told).toEqual(['before', 'meanwhile', 'after']);
      const membersIn = ({ rooms }: Sync): unknown[] => {
        const { state, timeline } = rooms?.join?.[room.roomId] ?? { state: { events: [] }, timeline: { events: [] } };
        const joins = [...state.events, ...timeline.events].filter(
          ({ type, content }) => type === 'm.room.member' && (content as JsonObject)['membership'] === 'join',
        );
        return [...new Set(joins.map(({ state_key: userId }) => userId))].sort();
      };
      const synced = await answered<Sync>('GET', `/sync?timeout=0&since=${since}`);
      expect(membersIn(synced)).toEqual(everybody);
      expect(synced.device_lists?.changed?.sort()).toEqual(expect.arrayContaining(everybody));
      expect(synced.device_lists?.changed).not.toContain(gone);
      expect(membersIn(await answered<Sync>('GET', `/sync?timeout=0&since=${meanwhile.next_batch}`))).toEqual(
        everybody,
      );
      // Whoever loads members lazily is told of those who say something.
      expect(
        membersIn(await answered<Sync>('GET', `/sync?timeout=0&filter=${lazily}&since=${lazy.next_batch}`)),
      ).toEqual([`@alice:${name}`]);
      expect(processes[1]!.output + processes[2]!.output).not.toMatch(/Unhandled|"level":"error"|\bERROR\b/);
    });
  },
);
