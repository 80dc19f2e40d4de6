import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Database } from '@rookery/database';
import { Config, processProtocol, SilentLogger } from '@rookery/platform';
import { Bus, defineRpc, Notifier, Rpc } from '@rookery/replication';
import { HiddenSenders } from '@rookery/rooms';
import {
  describeWithRedis,
  eventually,
  freePort,
  makeTestDatabasePlace,
  type TestDatabasePlace,
  TestRedis,
  testPostgresUrl,
} from '@rookery/testing';
import pg from 'pg';
import { AmongProcesses } from '../../../apps/homeserver/src/processes/among-processes.js';
import { rookery } from '../../support/operators.js';

const program = new URL('../../../apps/homeserver/dist/bundle/main.js', import.meta.url).pathname;
/** The same in as many files as it has sources, one of which can be another. */
const inFiles = new URL('../../../apps/homeserver/dist/main.js', import.meta.url).pathname;

describeWithRedis('A server of several processes', () => {
  let folder: string;
  let redis: TestRedis;
  let place: TestDatabasePlace;
  let port: number;
  let file: string;
  const children: ChildProcess[] = [];
  /** Those that run in this one. */
  const inside: AmongProcesses[] = [];
  let log = '';
  let builds = 0;

  beforeEach(async () => {
    log = '';
    folder = await mkdtemp(join(tmpdir(), 'rookery-processes-'));
    redis = await TestRedis.start();
    place = await makeTestDatabasePlace('postgres');
    port = await freePort();
    file = join(folder, 'homeserver.yaml');
    await writeFile(file, JSON.stringify(settings()));
  });
  afterEach(async () => {
    isEnding = true;
    await Promise.all(children.splice(0).map(end));
    isEnding = false;
    for (const one of inside.splice(0).toReversed()) await one.stop();
    await redis.stop();
    await place.remove();
    await rm(folder, { recursive: true, force: true });
  });

  function settings(more: Readonly<Record<string, unknown>> = {}): Readonly<Record<string, unknown>> {
    const url = new URL(testPostgresUrl());
    const wide = { per_second: 100_000, burst_count: 100_000 };
    const { args = {} } = place.options as { args?: Record<string, unknown> };
    return {
      ...{ server_name: 'rookery.test', report_stats: false, signing_key_path: join(folder, 'signing.key') },
      ...{ media_store_path: join(folder, 'media'), pid_file: join(folder, 'server.pid') },
      ...{ enable_registration: true, enable_registration_without_verification: true, bcrypt_rounds: 4 },
      ...{ rc_message: wide, rc_registration: wide, macaroon_secret_key: 'm', form_secret: 'f' },
      database: {
        name: 'psycopg2',
        args: {
          host: url.hostname,
          port: Number(url.port),
          user: url.username,
          password: url.password,
          ...args,
          cp_max: 5,
        },
      },
      redis: { enabled: true, host: '127.0.0.1', port: redis.port },
      listeners: [
        { port, bind_addresses: ['127.0.0.1'], type: 'http', resources: [{ names: ['client', 'federation'] }] },
      ],
      ...more,
    };
  }

  const start = (...args: string[]): ChildProcess => startProgram(program, '', ...args);
  const startBuild = (nodeOptions: string, ...args: string[]): ChildProcess =>
    startProgram(inFiles, nodeOptions, ...args);

  function startProgram(file: string, nodeOptions: string, ...args: string[]): ChildProcess {
    const child = spawn(process.execPath, [file, ...args], {
      stdio: ['ignore', 'pipe', 'pipe'],
      cwd: folder,
      env: { ...process.env, NODE_OPTIONS: nodeOptions },
    });
    child.stdout?.on('data', (data: Buffer) => (log += data.toString()));
    child.stderr?.on('data', (data: Buffer) => (log += data.toString()));
    children.push(child);
    return child;
  }

  let isEnding = false;
  /** As a unit of systemd does: a process that lost its place, since the machine had no time for it, ends and is begun anew. */
  function keepRunning(...args: string[]): void {
    start(...args).once('exit', () => isEnding || keepRunning(...args));
  }

  async function end(child: ChildProcess): Promise<void> {
    if (child.exitCode !== null || child.signalCode !== null) return;
    const ended = new Promise((resolve) => child.once('exit', resolve));
    child.kill('SIGCONT');
    child.kill('SIGTERM');
    const late = setTimeout(() => child.kill('SIGKILL'), 15_000);
    await ended;
    clearTimeout(late);
  }

  interface Answer {
    readonly status: number;
    readonly body: Record<string, unknown>;
  }
  /** On a connection of its own, so that the system chooses the process anew. */
  async function ask(
    at: number,
    method: string,
    path: string,
    body?: unknown,
    token?: string,
    limitMs = 50_000,
  ): Promise<Answer> {
    const response = await fetch(`http://127.0.0.1:${at}/_matrix/client/v3${path}`, {
      method,
      headers: {
        connection: 'close',
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
        ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      signal: AbortSignal.timeout(limitMs),
    }).catch((cause: unknown) => {
      throw new Error(`${method} ${path} at ${at} was not answered: ${String(cause)}`, { cause });
    });
    return { status: response.status, body: (await response.json()) as Record<string, unknown> };
  }
  /** What is answered with 200, however often it takes. @throws Error that says what came instead, and what the processes say */
  async function answered(...what: Parameters<typeof ask>): Promise<Answer> {
    let last: unknown;
    const tryOnce = async (): Promise<Answer | undefined> => {
      try {
        const [at, method, path, body, token] = what;
        const answer = await ask(at, method, path, body, token, 8_000);
        last = answer;
        return answer.status === 200 ? answer : undefined;
      } catch (error) {
        last = String(error);
        return undefined;
      }
    };
    try {
      return await eventually(tryOnce);
    } catch {
      const ends = children.map(({ pid, exitCode, signalCode }) => `${pid}: ${signalCode ?? exitCode ?? 'runs'}`);
      throw new Error(
        `${what.slice(0, 3).join(' ')} came to ${JSON.stringify(last)}; ${ends.join(', ')}\n${log.slice(-20_000)}`,
      );
    }
  }
  const register = async (at: number, username: string): Promise<string> => {
    const body = { username, password: 'a long password', auth: { type: 'm.login.dummy' } };
    const answer = await answered(at, 'POST', '/register', body);
    return String(answer.body['access_token']);
  };
  const bodies = (sync: Answer, roomId: string): string[] => {
    const { rooms } = sync.body as {
      rooms?: { join?: Record<string, { timeline?: { events?: { content: { body?: string } }[] } }> };
    };
    return (rooms?.join?.[roomId]?.timeline?.events ?? []).map(({ content }) => content.body ?? '');
  };

  it('keeps a restore off its database while any of them runs', async () => {
    const parent = start('--config', file, '--processes', '2');
    const token = await register(port, 'alice');
    await eventually(() => log.includes('answers beside the one that writes'));
    const backups = join(folder, 'backups');
    expect(await rookery('backup', '--config', file, '--to', backups)).toMatchObject({ code: 0 });
    const runs = await rookery('restore', '--from', backups, '--config', file);
    expect(runs).toMatchObject({
      code: 1,
      output: expect.stringMatching(/The server runs \(process \d+ of .*stop it/),
    });
    // Where no file tells, on another machine for one, the database does.
    const elsewhere = join(folder, 'elsewhere.yaml');
    await writeFile(elsewhere, JSON.stringify(settings({ pid_file: join(folder, 'none.pid') })));
    for (const command of [
      ['restore', '--from', backups],
      ['restore', 'adopt'],
    ])
      expect(await rookery(...command, '--config', elsewhere)).toMatchObject({
        code: 1,
        output: expect.stringContaining('Another server runs'),
      });
    expect((await ask(port, 'GET', '/account/whoami', undefined, token)).status).toBe(200);
    await end(parent);
    // Then it is the database that must be empty.
    expect(await rookery('restore', '--from', backups, '--config', elsewhere)).toMatchObject({
      code: 1,
      output: expect.stringContaining('The database is not empty'),
    });
  });

  it('answers everything on one port, and goes on when processes are killed, paused and started', async () => {
    const parent = start('--config', file, '--processes', '3');
    const token = await register(port, 'alice');
    await eventually(() => log.split('answers beside the one that writes').length === 3);
    const roomId = String((await ask(port, 'POST', '/createRoom', {}, token)).body['room_id']);
    const said: string[] = [];
    const say = async (text: string): Promise<void> => {
      // The same transaction until it is answered: it counts once.
      const path = `/rooms/${encodeURIComponent(roomId)}/send/m.room.message/${text}`;
      await answered(port, 'PUT', path, { body: text, msgtype: 'm.text' }, token);
      said.push(text);
    };
    const heard = async (): Promise<string[]> =>
      bodies(
        await answered(port, 'GET', '/sync?filter={"room":{"timeline":{"limit":100}}}', undefined, token),
        roomId,
      ).filter(Boolean);
    for (let i = 0; i < 10; i++) {
      await say(`before${i}`);
      expect(await heard()).toEqual(said);
    }

    const processes = async (): Promise<{ pid: number; isWriter: boolean }[]> => {
      const rows = await query<{ name: string; writes: boolean | null }>(
        `SELECT name, number = (SELECT holder FROM leases WHERE name = 'writer') AS writes FROM processes
          WHERE NOT fenced ORDER BY number`,
      );
      return rows.map(({ name, writes }) => ({ pid: Number(/\d+$/.exec(name)![0]), isWriter: writes === true }));
    };
    const writerPid = async (): Promise<number> => (await processes()).find(({ isWriter }) => isWriter)!.pid;

    const killed = await writerPid();
    process.kill(killed, 'SIGKILL');
    await say('after the writer was killed');
    expect(await heard()).toEqual(said);
    await eventually(async () => (await writerPid()) !== killed);

    // Paused: its place is taken, and what it still does is worth nothing.
    await eventually(async () => (await processes()).length >= 3);
    const paused = await writerPid();
    process.kill(paused, 'SIGSTOP');
    await say('after the writer was paused');
    expect(await heard()).toEqual(said);
    expect(await writerPid()).not.toBe(paused);
    try {
      process.kill(paused, 'SIGCONT');
    } catch {
      // It was ended meanwhile, as one that hangs.
    }
    await eventually(async () => !(await processes()).some(({ pid }) => pid === paused));
    await say('after it went on');
    expect(await heard()).toEqual(said);

    // Without Redis all goes on, and is the same afterwards.
    await redis.down();
    await say('without redis');
    expect(await heard()).toEqual(said);
    await redis.up();
    await say('with redis again');
    expect(await heard()).toEqual(said);
    // Nor is it needed where it hangs.
    redis.hang();
    await say('while redis hangs');
    expect(await heard()).toEqual(said);
    redis.goOn();
    await say('after redis went on');
    expect(await heard()).toEqual(said);

    await end(parent);
    expect(parent.exitCode).toBe(0);
    expect((await processes()).length).toBe(0);
  });

  it('begins right after all of it was killed, though nobody has missed the one that wrote yet', async () => {
    const first = start('--config', file);
    await eventually(() => log.includes('This process writes'));
    const token = await register(port, 'alice');
    first.kill('SIGKILL');
    await new Promise((resolve) => first.once('exit', resolve));
    log = '';
    const second = start('--config', file);
    // It was killed only just now, however long the other one takes to begin.
    await eventually(async () => {
      await query(
        `UPDATE processes SET expires_ts = 6000 + EXTRACT(EPOCH FROM clock_timestamp()) * 1000 WHERE number = 1`,
      );
      return log.includes('The process that writes does not answer') || second.exitCode !== null;
    }, 60_000);
    await eventually(() => log.includes('This process writes') || second.exitCode !== null, 60_000);
    expect([second.exitCode, log.match(/"level":"error".*/u)?.[0]]).toEqual([null, undefined]);
    expect((await ask(port, 'GET', '/account/whoami', undefined, token)).status).toBe(200);
  });

  it.each(['while it runs', 'while it starts'])('gives its place back when it is stopped, %s', async (when) => {
    const first = start('--config', file);
    const begun = when === 'while it runs' ? 'This process writes' : 'Redis is there';
    await eventually(() => log.includes(begun));
    // As a service manager and whoever started the process both do.
    const told = setInterval(() => first.kill('SIGTERM'), 1);
    expect(await new Promise((resolve) => first.once('exit', (...args) => resolve(args)))).toEqual([0, null]);
    clearInterval(told);
    expect(await query('SELECT name FROM processes WHERE NOT fenced')).toEqual([]);
  });

  it('says as one what a reload did in all of its processes', async () => {
    const parent = start('--config', file, '--processes', '2');
    await register(port, 'alice');
    await eventually(() => log.includes('answers beside the one that writes'));
    await writeFile(file, JSON.stringify(settings({ log_level: 'debug' })));
    expect(await rookery('reload', '--config', file)).toMatchObject({
      code: 0,
      output: expect.stringContaining('changed settings: log_level'),
    });
    expect(log.match(/Settings reloaded/g)).toHaveLength(2);
    await writeFile(file, JSON.stringify(settings({ modules: [{ module: './gone.mjs' }] })));
    expect(await rookery('reload', '--config', file)).toMatchObject({
      code: 1,
      output: expect.stringMatching(/Nothing was reloaded\. .*gone\.mjs/),
    });
    await end(parent);
  });

  describe('one of which ends, or is not heard', () => {
    const account = '/user/@alice:rookery.test/account_data';
    const path = `${account}/org.example.n`;
    let one: InsideProcess;
    let two: InsideProcess;
    let token: string;
    interface InsideProcess {
      readonly among: AmongProcesses;
      readonly at: number;
    }
    interface Sync {
      readonly next_batch: string;
      readonly account_data?: { readonly events: readonly object[] };
    }
    const startInside = async (name: string): Promise<InsideProcess> => {
      const at = await freePort();
      const listeners = [{ port: at, bind_addresses: ['127.0.0.1'], type: 'http', resources: [{ names: ['client'] }] }];
      // Who is there would be news as well.
      const config = Config.fromObject(settings({ listeners, presence: { enabled: false } }));
      const own = { name, canWrite: true, host: '127.0.0.1', encrypted: false, logger: new SilentLogger() };
      const among = await AmongProcesses.start(config, {}, own);
      inside.push(among);
      return { among, at };
    };
    const put = (at: number, type: string, content: object): Promise<Answer> =>
      ask(at, 'PUT', `${account}/${type}`, content, token);
    const sync = async (at: number, since?: string): Promise<Sync> => {
      const query = since === undefined ? '' : `?since=${since}&timeout=60000`;
      const answer = await ask(at, 'GET', `/sync${query}`, undefined, token);
      expect(answer.status).toBe(200);
      return answer.body as unknown as Sync;
    };
    /** A sync that waits for news. */
    const wait = async ({ at, among }: InsideProcess): Promise<{ readonly outcome: Promise<Sync> }> => {
      const { next_batch: since } = await sync(at);
      const outcome = sync(at, since);
      await eventually(() => among.server.service(Notifier).waiting === 1);
      return { outcome };
    };

    beforeEach(async () => {
      one = await startInside('one');
      two = await startInside('two');
      expect([one.among.isWriter, two.among.isWriter]).toEqual([true, false]);
      token = await register(one.at, 'alice');
      expect((await put(two.at, 'org.example.n', { n: 1 })).status).toBe(200);
      expect((await ask(one.at, 'GET', path, undefined, token)).body).toEqual({ n: 1 });
    });

    it('writes by the settings that were reloaded last, whatever became of those before', async () => {
      const reload = (more: object): Promise<object> =>
        two.among.reload(Config.fromObject(settings({ presence: { enabled: false }, ...more })));
      const [refused, taken] = [reload({ modules: [{ module: './nowhere.js' }] }), reload({ max_upload_size: '7M' })];
      await expect(refused).rejects.toThrow('nowhere.js');
      await taken;
      await one.among.stop();
      await eventually(() => two.among.isWriter);
      expect(two.among.server.config.get('max_upload_size')).toBe(7 * 1024 * 1024);
    });

    it('looks for what that one has written and could not tell', async () => {
      two.among.server.service(Bus).publish = () => undefined;
      const { outcome } = await wait(one);
      expect((await put(two.at, 'org.example.n', { n: 2 })).status).toBe(200);
      await new Promise((resolve) => setTimeout(resolve, 500));
      expect(one.among.server.service(Notifier).waiting).toBe(1);
      await two.among.stop();
      expect((await outcome).account_data?.events).toEqual([{ type: 'org.example.n', content: { n: 2 } }]);
    });

    it('is told of what that one still writes while it stops', async () => {
      const database = two.among.server.service(Database);
      const write = database.write.bind(database);
      const [begun, goOn] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
      database.write = async (work, options) => {
        if (options?.name === 'account_data') {
          begun.resolve();
          await goOn.promise;
        }
        return write(work, options);
      };
      const told: (readonly [string, number])[] = [];
      one.among.server.service(Bus).subscribe(({ stream, writer, position }) => {
        if (stream === 'account_data') told.push([writer, position]);
      });
      const [here, there] = [await wait(one), await wait(two)];
      const before = one.among.server.service(Notifier).position('account_data');
      const putting = put(two.at, 'org.example.n', { n: 2 });
      await begun.promise;
      const stopping = two.among.stop();
      // Whoever waits is let go of first.
      await there.outcome;
      goOn.resolve();
      expect((await putting).status).toBe(200);
      expect((await here.outcome).account_data?.events).toEqual([{ type: 'org.example.n', content: { n: 2 } }]);
      await stopping;
      expect(told).toEqual([['two', before + 1]]);
    });

    const [alice, bob] = ['@alice:rookery.test', '@bob:rookery.test'];
    /** One remembers whom Alice ignores, and is not told that it is somebody else by now. @returns what it remembers */
    async function ignoreUnheard(): Promise<HiddenSenders> {
      const hidden = one.among.server.service(HiddenSenders);
      expect(await hidden.ignoredBy(alice)).toEqual(new Set());
      const bus = two.among.server.service(Bus);
      const publish = bus.publish.bind(bus);
      bus.publish = (message) => (message.stream === 'caches' ? undefined : publish(message));
      expect((await put(two.at, 'm.ignored_user_list', { ignored_users: { [bob]: {} } })).status).toBe(200);
      expect(await hidden.ignoredBy(alice)).toEqual(new Set());
      return hidden;
    }

    it('forgets what it remembers where that one finds out that it was not heard, though no stream is behind', async () => {
      const hidden = await ignoreUnheard();
      // As whoever finds Redis silent does before it answers.
      await two.among.server.service(Rpc).callOthers(defineRpc<undefined, null>('catch_up'), undefined);
      expect(await hidden.ignoredBy(alice)).toEqual(new Set([bob]));
    });

    it('forgets what it remembers where that one was lost, and may have been about to say that it is true no more', async () => {
      const hidden = await ignoreUnheard();
      // As whoever finds it without a sign of life does.
      await query(`UPDATE processes SET fenced = TRUE WHERE name = 'two'`);
      await eventually(async () => (await hidden.ignoredBy(alice)).has(bob));
      await two.among.lost;
    });
  });

  it('says nothing in clear between its processes where that is set', async () => {
    await writeFile(file, JSON.stringify(settings({ processes: { tls: true } })));
    const parent = start('--config', file, '--processes', '2');
    const token = await register(port, 'alice');
    await eventually(() => log.includes('answers beside the one that writes'));
    // Each on a connection of its own: some are passed on, with bodies and without.
    for (let n = 0; n < 12; n++) {
      const path = '/user/@alice:rookery.test/account_data/org.example.n';
      expect((await ask(port, 'PUT', path, { n }, token)).status).toBe(200);
      expect(await ask(port, 'GET', path, undefined, token)).toEqual({ status: 200, body: { n } });
      expect((await ask(port, 'GET', '/account/3pid', undefined, token)).status).toBe(200);
    }
    const rows = await query<{ address: string }>('SELECT address FROM processes WHERE NOT fenced');
    type Place = { readonly port: number; readonly tls?: boolean };
    const places = rows.flatMap(({ address }) => {
      const { rpc, fellows } = JSON.parse(address) as { readonly rpc?: Place; readonly fellows?: Place };
      return [rpc ?? [], fellows ?? []].flat();
    });
    // Two that are called, and one of them takes requests.
    expect(places.map(({ tls }) => tls)).toEqual([true, true, true]);
    for (const place of places) await expect(fetch(`http://127.0.0.1:${place.port}/`)).rejects.toThrow('fetch failed');
    await end(parent);
  });

  it('is a main process and workers with files of their own, as operators know it', async () => {
    const workerPort = await freePort();
    const shared = {
      ...{ instance_map: { main: { host: '127.0.0.1', port: 9093 } }, worker_replication_secret: 'shared' },
      // The worker does, by its own file.
      ...{ enable_media_repo: false, media_instance_running_background_jobs: 'reader1' },
    };
    await writeFile(file, JSON.stringify(settings(shared)));
    const worker = join(folder, 'worker.yaml');
    await writeFile(
      worker,
      JSON.stringify({
        ...{ worker_app: 'synapse.app.generic_worker', worker_name: 'reader1', enable_media_repo: true },
        worker_listeners: [
          {
            type: 'http',
            port: workerPort,
            bind_addresses: ['127.0.0.1'],
            resources: [{ names: ['client', 'federation'] }],
          },
        ],
      }),
    );
    keepRunning('--config', file);
    keepRunning('--config', file, worker);
    const token = await register(workerPort, 'bob');
    const roomId = String((await ask(workerPort, 'POST', '/createRoom', {}, token)).body['room_id']);
    let since = String((await ask(port, 'GET', '/sync', undefined, token)).body['next_batch']);
    const heard: string[] = [];
    const listening = (async () => {
      // A poll may end for something else, such as presence.
      while (heard.length === 0) {
        const answer = await ask(workerPort, 'GET', `/sync?timeout=5000&since=${since}`, undefined, token);
        since = String(answer.body['next_batch']);
        heard.push(...bodies(answer, roomId).filter(Boolean));
      }
    })();
    const path = `/rooms/${encodeURIComponent(roomId)}/send/m.room.message/1`;
    expect((await ask(port, 'PUT', path, { body: 'hello', msgtype: 'm.text' }, token)).status).toBe(200);
    await listening;
    expect(heard).toEqual(['hello']);
    const uploaded = await fetch(`http://127.0.0.1:${workerPort}/_matrix/media/v3/upload`, {
      ...{
        method: 'POST',
        headers: { authorization: `Bearer ${token}`, 'content-type': 'text/plain' },
        body: 'a file',
      },
    });
    const { content_uri: uri } = (await uploaded.json()) as { content_uri: string };
    expect([uploaded.status, uri]).toEqual([200, expect.stringMatching(/^mxc:/)]);
    for (const at of [workerPort, port]) {
      const download = `http://127.0.0.1:${at}/_matrix/client/v1/media/download/${uri.slice('mxc://'.length)}`;
      const answer = await fetch(download, { headers: { authorization: `Bearer ${token}` } });
      expect([answer.status, await answer.text()]).toEqual([200, 'a file']);
    }
    expect((await ask(port, 'POST', '/logout', {}, token)).status).toBe(200);
    expect((await ask(workerPort, 'GET', '/account/whoami', undefined, token)).status).toBe(401);
  });

  it('is upgraded process by process, and keeps off what is more than one version away', async () => {
    const buildOf = (protocol: number): Promise<string> =>
      anotherBuild(
        '/platform/dist/process-protocol.js',
        `processProtocol = ${processProtocol};`,
        `processProtocol = ${protocol};`,
      );
    const [one, two, three] = [await freePort(), await freePort(), await freePort()];
    const own = [await ownFile(one), await ownFile(two), await ownFile(three)];
    const next = await buildOf(processProtocol + 1);
    const farAway = processProtocol + 3;
    const before = start('--config', file, own[0]!);
    const token = await register(one, 'dora');
    startBuild(next, '--config', file, own[1]!);
    const roomId = String((await answered(two, 'POST', '/createRoom', {}, token)).body['room_id']);
    const room = `/rooms/${encodeURIComponent(roomId)}`;
    let isTyping = false;
    /** Who types is known to the process that writes, and the other one asks it. */
    const areOne = async (from: number, to: number): Promise<void> => {
      isTyping = !isTyping;
      const typing = { typing: isTyping, timeout: 120_000 };
      const path = `${room}/typing/${encodeURIComponent('@dora:rookery.test')}`;
      await answered(from, 'PUT', path, typing, token);
      const { body } = await answered(to, 'GET', '/sync', undefined, token);
      const { ephemeral } = (body as { rooms: { join: Record<string, { ephemeral: { events: object[] } }> } }).rooms
        .join[roomId]!;
      const typers = ephemeral.events.filter((event) => (event as { type: string }).type === 'm.typing');
      expect(JSON.stringify(typers).includes('@dora:rookery.test')).toBe(isTyping);
    };
    await areOne(one, two);
    await areOne(two, one);

    const far = startBuild(await buildOf(farAway), '--config', file, own[2]!);
    await new Promise((resolve) => far.once('exit', resolve));
    expect(far.exitCode).toBe(1);
    expect(log).toMatch(
      new RegExp(`speaks version \\d between processes, this one \\(version [^)]+\\) speaks version ${farAway}`),
    );

    // The one of the version before ends; the new one writes, and one of the version before can come back beside it.
    await end(before);
    await areOne(two, two);
    const back = start('--config', file, own[0]!);
    await answered(one, 'GET', '/account/whoami', undefined, token);
    await areOne(one, two);
    await areOne(two, one);
    await end(back);
    startBuild(next, '--config', file, own[0]!);
    await answered(one, 'GET', '/account/whoami', undefined, token);
    await areOne(one, two);
    await areOne(two, one);
  });

  it('keeps its database from a newer program until those that could not serve it afterwards have ended', async () => {
    const buildWith = (schemaVersion: number, name: string): Promise<string> =>
      anotherBuild(
        '/homeserver/dist/schema.js',
        'export const migrations = [',
        `export const migrations = [{
          version: ${schemaVersion}, name: '${name}', up: async (tx) => void (await tx.run('CREATE TABLE ${name} (id BIGINT)')) },`,
      );
    const newer = await buildWith(2, 'of_tomorrow');
    const today = start('--config', file);
    const token = await register(port, 'erin');
    const tomorrowPort = await freePort();
    const tomorrow = await ownFile(tomorrowPort);
    const early = startBuild(newer, '--config', file, tomorrow);
    await new Promise((resolve) => early.once('exit', resolve));
    expect(early.exitCode).toBe(1);
    expect(log).toMatch(
      /would need schema version 2 or newer afterwards, and a process of this server that runs .* knows versions up to 1: stop/,
    );
    // A step of the version that the one that runs knows, and yet not one of its own.
    const almost = startBuild(await buildWith(1, 'of_this_evening'), '--config', file, tomorrow);
    await new Promise((resolve) => almost.once('exit', resolve));
    expect(almost.exitCode).toBe(1);
    expect(log).toMatch(
      /would need programs that know the step of_this_evening afterwards, and a process of this server that runs .* does not: stop/,
    );
    expect((await ask(port, 'POST', '/createRoom', {}, token)).status).toBe(200);

    await end(today);
    startBuild(newer, '--config', file, tomorrow);
    await answered(tomorrowPort, 'GET', '/account/whoami', undefined, token);
    const late = start('--config', file);
    await new Promise((resolve) => late.once('exit', resolve));
    expect(late.exitCode).toBe(1);
    expect(log).toMatch(/has schema version 2, made by a newer Rookery; this one knows versions up to 1/);
  });

  it('keeps off a server that does not know of the others', async () => {
    start('--config', file);
    await register(port, 'carol');
    const alone = join(folder, 'alone.yaml');
    await writeFile(
      alone,
      JSON.stringify(settings({ redis: { enabled: false }, listeners: [], pid_file: join(folder, 'alone.pid') })),
    );
    const second = start('--config', alone);
    await new Promise((resolve) => second.once('exit', resolve));
    expect(second.exitCode).toBe(1);
    expect(log).toMatch(/Another server runs on the database[^\n]*\n[^\n]*redis\.enabled/);
  });

  it('does not start a worker several times', async () => {
    const worker = join(folder, 'worker.yaml');
    await writeFile(worker, JSON.stringify({ worker_app: 'synapse.app.generic_worker', worker_name: 'reader1' }));
    const instances = { instance_map: { main: { host: '127.0.0.1', port: 9093 } } };
    await writeFile(file, JSON.stringify(settings(instances)));
    const several = start('--config', file, worker, '--processes', '2');
    await new Promise((resolve) => several.once('close', resolve));
    expect(several.exitCode).toBe(1);
    expect(log).toMatch(/--processes 2 starts processes that are all alike[^\n]*worker\.yaml/);
  });

  /** A build of the program in which one file reads otherwise; what Node is told to start it. */
  const anotherBuild = async (file: string, here: string, there: string): Promise<string> => {
    const hook = join(folder, `build${String(++builds)}.mjs`);
    await writeFile(
      hook,
      `import { registerHooks } from 'node:module';
      registerHooks({
        load(url, context, next) {
          const loaded = next(url, context);
          if (!url.endsWith(${JSON.stringify(file)})) return loaded;
          return { ...loaded, source: Buffer.from(loaded.source).toString().replace(${JSON.stringify(here)}, ${JSON.stringify(there)}) };
        },
      });`,
    );
    return `--import ${hook}`;
  };

  /** Settings of a single process: its port. */
  const ownFile = async (ownPort: number): Promise<string> => {
    const path = join(folder, `own${ownPort}.yaml`);
    const resources = [{ names: ['client', 'federation'] }];
    const listeners = [{ port: ownPort, bind_addresses: ['127.0.0.1'], type: 'http', resources }];
    await writeFile(path, JSON.stringify({ listeners, pid_file: join(folder, `own${ownPort}.pid`) }));
    return path;
  };

  /** Asks the database, past the server. */
  async function query<Row extends object>(sql: string): Promise<Row[]> {
    const url = new URL(testPostgresUrl());
    url.pathname = `/${String((place.options as { args?: { dbname?: string } }).args?.dbname)}`;
    const client = new pg.Client({ connectionString: url.href });
    await client.connect();
    try {
      return (await client.query<Row>(sql)).rows;
    } finally {
      await client.end();
    }
  }
});
