import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parse, stringify } from 'yaml';
import { rookery } from '../support/operators.js';
import { type DatabaseKind, emptyDatabase, ServerProcess } from '../support/server-process.js';

interface Section {
  readonly name: string;
  readonly args: Readonly<Record<string, unknown>>;
}
type Answer = Record<string, unknown>;

describe.each([
  ['sqlite', 'postgres'],
  ['postgres', 'sqlite'],
] as const satisfies readonly (readonly [DatabaseKind, DatabaseKind])[])(
  'state in a database of its own, as its operator has it (%s, then %s)',
  (kind, otherKind) => {
    let server: ServerProcess;
    let token: string;
    let room: string;
    let text = '';
    const drops: (() => Promise<void>)[] = [];
    beforeAll(async () => {
      server = await ServerProcess.prepare(kind);
      text = readFileSync(server.configFile, 'utf8');
      await server.start();
      const auth = { type: 'm.login.dummy' };
      const account = await call(undefined, 'POST', 'register', { username: 'alice', password: 'correct horse', auth });
      token = String(account['access_token']);
      room = String((await call(token, 'POST', 'createRoom', { preset: 'public_chat' }))['room_id']);
    });
    afterAll(async () => {
      await server?.remove();
      for (const drop of drops) await drop();
    });

    let files = 0;
    const empty = async (of: DatabaseKind): Promise<Section> => {
      const file = join(server.folder, `database${++files}.db`);
      if (of === 'sqlite') return { name: 'sqlite3', args: { database: file } };
      const made = await emptyDatabase(of, server.folder);
      drops.push(made.drop);
      return made.section as Section;
    };
    async function call(by: string | undefined, method: string, path: string, body?: object): Promise<Answer> {
      const answer = await fetch(`${server.baseUrl}/_matrix/client/v3/${path}`, {
        method,
        ...(by !== undefined && { headers: { authorization: `Bearer ${by}` } }),
        ...(body !== undefined && { body: JSON.stringify(body) }),
      });
      expect({ path, status: answer.status }).toEqual({ path, status: 200 });
      return (await answer.json()) as Answer;
    }
    const at = (): string => `rooms/${encodeURIComponent(room)}`;
    /** Said topics, by the event that followed upon each. */
    const said = new Map<string, string>();
    const tell = async (topic: string): Promise<void> => {
      await call(token, 'PUT', `${at()}/state/m.room.topic`, { topic });
      const { event_id: id } = await call(token, 'PUT', `${at()}/send/m.room.message/${topic}`, { body: topic });
      said.set(String(id), topic);
    };
    const isRight = async (): Promise<void> => {
      for (const [id, topic] of said) {
        const { state } = await call(token, 'GET', `${at()}/context/${encodeURIComponent(id)}?limit=0`);
        const there = (state as { type: string; content: { topic: string } }[]).find((e) => e.type === 'm.room.topic');
        expect({ id, topic: there?.content.topic }).toEqual({ id, topic });
      }
      await tell(`more ${said.size}`);
    };
    const write = (name: string, settings: object): string => {
      const file = join(server.folder, name);
      writeFileSync(file, stringify(settings));
      return file;
    };
    const apart = (main: Section, state: Section): object => ({
      databases: { master: { ...main, data_stores: ['main'] }, state: { ...state, data_stores: ['state'] } },
    });
    const use = (settings: object): void => {
      const { database: _, ...rest } = parse(text) as Record<string, unknown>;
      write('homeserver.yaml', { ...rest, ...settings });
    };

    it('is moved out', async () => {
      await tell('at first');
      await server.stop();
      const main = (parse(text) as { database: Section }).database;
      const two = apart(main, await empty(kind));
      // Named before it was moved.
      use(two);
      await expect(server.start()).rejects.toThrow(/homeserver\.yaml:\d+: databases: .*is empty, and the main one has/);
      await server.stop();
      writeFileSync(server.configFile, text);
      const moved = await rookery('move-database', '--config', server.configFile, '--to', write('two.yaml', two));
      expect(moved).toMatchObject({ code: 0, output: expect.stringContaining('counts and hashes agree') });
      use(two);
      await server.start();
      await isRight();
      expect((await rookery('doctor', '--config', server.configFile, '--offline')).output).toContain('state: ');
      expect((await rookery('upgrade', 'check', '--config', server.configFile)).output).toContain('State in ');
    });

    it('outlives kills', async () => {
      for (let kill = 0; kill < 2; kill++) {
        const sending = (async () => {
          for (let n = 0; ; n++) await tell(`kill ${kill} ${n}`);
        })().catch(() => undefined);
        await new Promise((resolve) => setTimeout(resolve, 300 + kill * 170));
        await server.stop('SIGKILL');
        await sending;
        await server.start();
        await isRight();
      }
    });

    it('comes back from a backup', async () => {
      const backups = join(server.folder, 'backups');
      const lasting = new Map(said);
      expect(await rookery('backup', '--config', server.configFile, '--to', backups)).toMatchObject({ code: 0 });
      await tell('lost with the fire');
      await server.stop();
      const places = apart(await empty(kind), await empty(kind));
      use({ ...places, media_store_path: join(server.folder, 'media2') });
      const one = write('alone.yaml', { database: await empty(kind) });
      const restored = (...more: string[]) =>
        rookery('restore', '--from', backups, '--config', server.configFile, ...more);
      expect((await restored('--config', one)).output).toContain('state has a database of its own');
      expect(await restored()).toMatchObject({ code: 0 });
      await server.start();
      said.clear();
      for (const [id, topic] of lasting) said.set(id, topic);
      await isRight();
      await server.stop();
    });

    it('is moved to other databases, and in again', async () => {
      const [otherMain, otherState] = [await empty(otherKind), await empty(otherKind)];
      const others = apart(otherMain, otherState);
      const across = await rookery(
        'move-database',
        '--config',
        server.configFile,
        '--to',
        write('others.yaml', others),
      );
      expect(across).toMatchObject({ code: 0, output: expect.stringContaining('counts and hashes agree') });
      use(others);
      await server.start();
      await isRight();
      await server.stop();
      const single = { database: otherMain };
      // Named before it was moved back.
      use(single);
      await expect(server.start()).rejects.toThrow(
        /homeserver\.yaml:\d+: database[^ ]*: the state lies in a database of its/,
      );
      await server.stop();
      use(others);
      const back = await rookery('move-database', '--config', server.configFile, '--to', write('single.yaml', single));
      expect(back).toMatchObject({ code: 0 });
      use(single);
      await server.start();
      await isRight();
    });
  },
);
