import { describeWithRedis, eventually } from '@rookery/testing';
import { Audit } from './audit.js';
import { CrashClient, inParallel } from './client.js';
import { Cluster } from './cluster.js';
import { Errands } from './errands.js';
import { faults } from './faults.js';
import { Journal, Load, roomBody } from './load.js';
import { Outside } from './outside.js';
import { pick, randomFrom } from '../support/random.js';
import { Watcher } from './watcher.js';

/** How often something happens: 200 times by `npm run test:crash`, else as often as is told; the server has three processes. */
const isLongRun = process.env['npm_lifecycle_event'] === 'test:crash';
const faultCount = Number(process.env['ROOKERY_CRASH_FAULTS'] ?? (isLongRun ? 200 : 0));
const itWithFaults = faultCount > 0 ? it : it.skip;
/** Whether there is time for what is due again only after minutes. */
const isPatient = faultCount >= 50;
const seed = Number(process.env['ROOKERY_CRASH_SEED'] ?? Math.floor(Math.random() * 1e9));
const [userCount, firstRooms, maxRooms, memberCount] = [6, 3, 12, 3];
/** Between two requests of a user, so that there is time for processes that begin. */
const restMs = 25;

const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

describeWithRedis('A server of several processes that are killed, paused and cut off', () => {
  let outside: Outside;
  let cluster: Cluster;
  const random = randomFrom(seed);
  /** Whether nothing is harmed just now. A busy machine may lose a process all the same: whoever looks asks again once it is there. */
  let isQuiet: boolean;
  /** How often that was. */
  let lost: number;
  let mending: Promise<void> | undefined;
  const whenAway = (): Promise<void> | undefined => {
    if (!isQuiet) return undefined;
    if (mending === undefined) lost++;
    return (mending ??= cluster.mend().finally(() => (mending = undefined)));
  };

  beforeEach(async () => {
    [isQuiet, lost] = [false, 0];
    outside = await Outside.open();
    cluster = await Cluster.start(memberCount, await outside.settings());
  });
  afterEach(async () => {
    await cluster?.remove();
    await outside?.close();
  });

  const register = (name: string): Promise<CrashClient> =>
    CrashClient.register(() => cluster.baseUrl(random), name, whenAway);

  itWithFaults(
    faultCount > 0
      ? `keeps its word over ${faultCount} faults (seed ${seed})`
      : 'keeps its word over many faults (not run: npm run test:crash, or ROOKERY_CRASH_FAULTS)',
    async () => {
      const clients: CrashClient[] = [];
      for (let n = 0; n < userCount; n++) clients.push(await register(`user${n}`));
      /** Gets everything and says nothing. */
      const listener = await register('listener');
      await listener.ok('POST', '/pushers/set', outside.pusher);
      const journal = new Journal();
      for (const client of clients.slice(0, firstRooms)) {
        const { room_id } = await client.ok<{ room_id: string }>('POST', '/createRoom', roomBody(journal.nonce()));
        const room = journal.addRoom(room_id, client);
        for (const other of [...clients, listener].filter((each) => each !== client)) {
          await other.ok('POST', `/rooms/${room_id}/join`, {});
          room.members.add(other);
        }
      }
      const heardOf = [...journal.rooms.keys()];
      const watchers = [listener, ...clients.slice(0, 2)].map((client) => new Watcher(client));
      const audit = new Audit(journal);
      await inParallel(watchers, (watcher) => watcher.catchUp());
      const errands = new Errands(clients[0]!, clients[1]!, listener);
      /** Looks whether those have heard everything who were in a room all the time. */
      const compareHeard = (): void => {
        for (const watcher of watchers)
          for (const { roomId, creator } of journal.rooms.values())
            if (creator === watcher.client || (watcher.client === listener && heardOf.includes(roomId)))
              audit.compareHeard(watcher, roomId);
      };
      const tookMs = new Map<string, number[]>();
      let ended = 0;

      // Each of them before any comes again; the first takes the writer away, so that a run of few has that, too.
      let bag: (typeof faults)[number][] = [];
      const next = (): (typeof faults)[number] => {
        if (bag.length === 0) bag = [...faults];
        const fault = pick(ended > 0 ? bag : bag.filter(({ endsWriter }) => endsWriter), random)!;
        bag = bag.filter((one) => one !== fault);
        return fault;
      };
      for (let n = 1; n <= faultCount; n++) {
        const fault = next();
        isQuiet = false;
        const before = journal.operations.length;
        const load = new Load(journal, clients, random, maxRooms);
        const running = [load.runOnOthers(restMs), errands.run(restMs), ...watchers.map((watcher) => watcher.follow())];
        // Failures are looked at below; until then nobody hears of them.
        for (const each of running) each.catch(() => undefined);
        /** Fails at once where one of them does. */
        const beside = <T>(work: Promise<T>): Promise<T> =>
          Promise.race([work, ...running.map((each) => each.then(() => work))]);
        const busy = before + 10 + random() * 60;
        await beside(eventually(() => journal.operations.length >= busy));

        const atMs = performance.now();
        const undo = await fault.happen(cluster, random);
        if (fault.endsWriter) ended += 1;
        // How long it lasts: long enough to be replaced, or not, or only nearly.
        await sleep(500 + random() * 9_000);
        const complain = async (error: unknown): Promise<never> => {
          const state = JSON.stringify(await cluster.state());
          throw new Error(`${n}: ${fault.name}: ${String(error)}\n${state}\n${cluster.complaints}`, { cause: error });
        };
        await undo();
        await cluster.mend().catch(complain);
        const answered = (): number | undefined =>
          journal.operations
            .slice(before)
            .filter((each) => each.startedMs > atMs && each.endedMs !== undefined)
            .map((each) => each.endedMs!)
            .sort((a, b) => a - b)[0];
        const answeredMs = await beside(eventually(answered)).catch(complain);
        tookMs.set(fault.name, [...(tookMs.get(fault.name) ?? []), answeredMs - atMs]);

        load.end();
        errands.end();
        for (const watcher of watchers) watcher.end();
        const settled = async (): Promise<void> => {
          await Promise.all(running);
          isQuiet = true;
          await audit.afterCrash();
          await inParallel(watchers, (watcher) => watcher.catchUp());
          compareHeard();
        };
        await settled().catch(complain);
        const where = { n, fault: fault.name };
        expect({ ...where, problems: audit.problems }).toEqual({ ...where, problems: [] });
        if (bag.length === 0) process.stdout.write(tableOf(tookMs));
      }

      await audit.everything();
      compareHeard();
      expect(audit.problems).toEqual([]);
      // Rooms in which nobody else writes have no forks: one event follows another.
      const forks = 'SELECT prev_event_id FROM event_edges GROUP BY prev_event_id HAVING count(*) > 1';
      expect(await cluster.query(forks)).toEqual([]);
      const ends = 'SELECT room_id FROM event_forward_extremities GROUP BY room_id HAVING count(*) <> 1';
      expect(await cluster.query(ends)).toEqual([]);
      const doubled = 'SELECT stream_ordering FROM events GROUP BY stream_ordering HAVING count(*) > 1';
      expect(await cluster.query(doubled)).toEqual([]);

      expect(errands.claimed.length).toBeGreaterThan(0);
      expect(new Set(errands.claimed).size).toBe(errands.claimed.length);
      const [reader] = watchers;
      // What was given up at the end of a round may have arrived as well; nothing came twice.
      expect(new Set(reader?.messages).size).toBe(reader?.messages.length);
      expect(reader?.messages).toEqual(expect.arrayContaining(errands.delivered));

      // What leaves the server may be repeated by whoever takes over, where nobody knows whether it arrived: nothing else is.
      const said = await cluster.query<{ event_id: string; room_id: string; sender: string }>(
        `SELECT event_id, room_id, sender FROM events WHERE type = 'm.room.message' ORDER BY stream_ordering`,
      );
      // What was withdrawn before its turn came is not pushed.
      const wanted = said.filter((event) => heardOf.includes(event.room_id) && !journal.redacted.has(event.event_id));
      const missing = (): string[] => wanted.map((event) => event.event_id).filter((id) => !outside.pushes.has(id));
      await eventually(() => missing().length === 0).catch(() => undefined);
      expect({ wanted: wanted.length, missing: missing() }).toEqual({ wanted: wanted.length, missing: [] });
      const pushedAgain = [...outside.pushes.values()].reduce((sum, times) => sum + times - 1, 0);
      expect(pushedAgain).toBeLessThanOrEqual(faultCount + lost);

      await eventually(() => {
        const got = new Set([...outside.transactions.values()].flatMap(([events]) => events ?? []));
        return said.every((event) => got.has(event.event_id));
      });
      for (const times of outside.transactions.values()) for (const again of times) expect(again).toEqual(times[0]);
      const inTransactions = [...outside.transactions.values()].flatMap(([events]) => events ?? []);
      expect(new Set(inTransactions).size).toBe(inTransactions.length);

      // What was about to be sent by somebody who was lost is due again after five minutes: a short run finds it in the queue.
      const queued = async (): Promise<string[]> =>
        (await cluster.query<{ recipient: string }>('SELECT recipient FROM mail_queue')).map(
          ({ recipient }) => recipient,
        );
      if (isPatient) await eventually(async () => (await queued()).length === 0, 420_000);
      const due = await queued();
      const mails = new Map<string, number>();
      for (const address of outside.mails.mails.flatMap(({ recipients }) => recipients))
        mails.set(address, (mails.get(address) ?? 0) + 1);
      expect([...errands.mailed.keys()].filter((address) => !mails.has(address) && !due.includes(address))).toEqual([]);
      const mailedAgain = [...errands.mailed].reduce(
        (sum, [address, tries]) => sum + Math.max(0, (mails.get(address) ?? 0) - tries),
        0,
      );
      expect(mailedAgain).toBeLessThanOrEqual(faultCount + lost);
      // A load in which nothing was lost, or nothing done, would have proven nothing.
      expect(ended).toBeGreaterThan(0);
      expect(journal.operations.length).toBeGreaterThan(faultCount * 10);
    },
    (isPatient ? 600_000 : 120_000) + faultCount * 60_000,
  );

  it('lets nobody write who comes back from a pause in which another took the place', async () => {
    const alice = await register('alice');
    const { room_id: roomId } = await alice.ok<{ room_id: string }>('POST', '/createRoom', roomBody('room'));
    const { members } = cluster;
    const paused = (await cluster.writer())!;
    const { pid } = paused.process;
    const path = (name: string): string => `/rooms/${roomId}/send/m.room.message/${name}`;
    const login = { type: 'm.login.password', identifier: { type: 'm.id.user', user: 'alice' } };
    /** As whoever reaches only this process. */
    const at = async (member: (typeof members)[number], name: string, signal: AbortSignal | null): Promise<number> => {
      const response = await fetch(`${member.process.baseUrl}/_matrix/client/v3${path(name)}`, {
        ...{ method: 'PUT', headers: { 'content-type': 'application/json', authorization: `Bearer ${token}` } },
        ...{ body: JSON.stringify({ msgtype: 'm.text', body: name }), signal },
      });
      return response.status;
    };
    const { access_token: token } = await alice.ok<{ access_token: string }>('POST', '/login', {
      ...login,
      password: 'password of alice',
    });
    expect(await at(paused, 'before', null)).toBe(200);

    paused.process.signal('SIGSTOP');
    // They wait in its connections, and are the first that it sees when it goes on.
    const asked = Array.from({ length: 20 }, (_, n) =>
      at(paused, `asked of the paused one ${n}`, null).catch(() => undefined),
    );
    const others = members.filter((one) => one !== paused);
    await eventually(
      async () => (await at(others[0]!, 'with another', AbortSignal.timeout(20_000)).catch(() => 0)) === 200,
    );
    expect((await cluster.writer())?.process.pid).not.toBe(pid);
    if (isLongRun) await sleep(60_000);
    paused.process.signal('SIGCONT');
    expect((await Promise.all(asked)).filter((status) => status === 200)).toEqual([]);
    await eventually(() => !paused.process.isRunning);

    await cluster.mend();
    const { chunk } = await alice.ok<{ chunk: { content: { body?: string } }[] }>(
      'GET',
      `/rooms/${roomId}/messages?dir=f&limit=100`,
    );
    expect(chunk.flatMap(({ content }) => content.body ?? [])).toEqual(['before', 'with another']);
  }, 240_000);
});

/** Times until something was written again, as a table for the manual. */
function tableOf(tookMs: ReadonlyMap<string, readonly number[]>): string {
  const seconds = (ms: number): string => (ms / 1000).toFixed(1);
  const lines = [...tookMs].map(([name, times]) => {
    const sorted = times.toSorted((a, b) => a - b);
    const middle = sorted[Math.floor(sorted.length / 2)] ?? 0;
    return `| ${name} | ${sorted.length} | ${seconds(middle)} | ${seconds(sorted.at(-1) ?? 0)} |`;
  });
  return ['', '| what happens | times | median, s | longest, s |', '|---|---:|---:|---:|', ...lines, ''].join('\n');
}
