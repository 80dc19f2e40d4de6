import type { RoomEvent } from '@rookery/events';
import { type FederationClient, type FederationRequest, FederationRequestError } from '@rookery/federation-client';
import type { Config } from '@rookery/platform';
import type { EventPersister, EventStore } from '@rookery/rooms';
import { FakeClock } from '@rookery/testing';
import { Readable } from 'node:stream';
import { WrongAnswer } from './candidates.js';
import type { MissingEvents } from './missing-events.js';
import type { PduChecker } from './pdu-checker.js';
import { StateEvents, unsignedPdu } from './state-events.fixture.js';
import { StoredStates } from './stored-states.js';

/** Nobody answers: ends with the signal. */
const unlessAborted = (signal?: AbortSignal): Promise<never> =>
  new Promise((_, reject) => {
    if (!signal) return reject(new Error('It would go on'));
    const end = (): void => reject(new FederationRequestError('b.test', 'aborted', 'given up'));
    if (signal.aborted) end();
    else signal.addEventListener('abort', end);
  });

describe.each(['11', '12'])('all of the state before an event in a room of version %s', (version) => {
  const carol = '@carol:b.test';
  const events = new StateEvents(version, carol, '!r:b.test');
  const { rules } = events;
  const make = events.make.bind(events);

  const create = events.create();
  const founder = make('m.room.member', carol, { membership: 'join' }, [create]);
  const open = make('m.room.join_rules', '', { join_rule: 'public' }, [create, founder]);
  const topic = make('m.room.topic', '', { topic: 'none' }, [create, founder]);
  /** Of each member two events: the second one rests upon the first. */
  const firsts = Array.from({ length: 60 }, (_, n) =>
    make('m.room.member', `@m${n}:s${n % 3}.test`, { membership: 'join' }, [create, open]),
  );
  const seconds = firsts.map((first) =>
    make('m.room.member', first.stateKey!, { membership: 'join', displayname: 'x' }, [create, open, first]),
  );
  const join = make('m.room.member', '@alice:us.test', { membership: 'join' }, [create, open]);
  const joinOnTopic = { ...join, prevEventIds: [topic.eventId] } as RoomEvent;

  /** Events that are stored already, what the other server answers, and what becomes of it. */
  function storing(answer: {
    state: readonly RoomEvent[];
    chain: readonly RoomEvent[];
    text?: string;
    ids?: object;
    isSilent?: boolean;
  }) {
    const stored = new Map([create, founder, open, topic, joinOnTopic].map((event) => [event.eventId, event]));
    const batches: RoomEvent[][] = [];
    const asked: string[] = [];
    const stopping = new AbortController();
    const idsOf = (events: readonly RoomEvent[]): string[] => events.map(({ eventId }) => eventId);
    const client = {
      stream: async ({ path, destination, signal }: FederationRequest) => {
        if (answer.isSilent) return unlessAborted(signal);
        const kind = path.split('/')[4]!;
        if (destination === 'gone.test') throw new FederationRequestError(destination, 'unreachable', 'gone');
        asked.push(kind);
        const ids = answer.ids ?? { pdu_ids: [...idsOf(answer.state), 7], auth_chain_ids: idsOf(answer.chain) };
        const events = {
          pdus: [...answer.state.map(unsignedPdu), { no: 'event' }],
          auth_chain: answer.chain.map(unsignedPdu),
        };
        const text = kind === 'state_ids' ? JSON.stringify(ids) : (answer.text ?? JSON.stringify(events));
        return { body: Readable.from(text.match(/[^]{1,997}/g)!.map((piece) => Buffer.from(piece))) };
      },
    };
    const events = {
      one: async (id: string) => stored.has(id) && { event: stored.get(id), rejectedReason: undefined },
      events: async (ids: string[]) => new Map(ids.flatMap((id) => (stored.has(id) ? [[id, stored.get(id)]] : []))),
      stored: async (ids: string[]) => new Set(ids.filter((id) => stored.has(id))),
      stateEntries: async function* (_: string, ids: string[]) {
        yield ids.flatMap((id) => {
          const event = stored.get(id);
          return event ? [{ ...event, membership: event.content['membership'] }] : [];
        });
      },
    };
    const persister = {
      receiveOutliers: async (_: string, some: RoomEvent[]) => {
        batches.push(some);
        for (const event of some)
          if (event.authEventIds.every((id) => stored.has(id))) stored.set(event.eventId, event);
      },
    };
    const checker = {
      sound: async (pdus: object[]) => pdus.map((pdu) => buildAgain(pdu)),
    };
    const servers: string[] = [];
    const missing = {
      events: (_: string, __: string, ___: string[], signal?: AbortSignal) => unlessAborted(signal).catch(() => []),
      orAnother: async (origin: string, _: string, ask: (server: string) => Promise<unknown>) => {
        for (const server of [origin, 'b.test']) {
          servers.push(server);
          const found = await ask(server).catch((error: unknown) => {
            if (!(error instanceof FederationRequestError)) throw error;
          });
          if (found) return found;
        }
        return undefined;
      },
    } as unknown as MissingEvents;
    const states = new StoredStates(
      client as unknown as FederationClient,
      missing,
      checker as unknown as PduChecker,
      events as unknown as EventStore,
      persister as unknown as EventPersister,
      { get: () => 10_000 } as unknown as Config,
      new FakeClock(),
    );
    return {
      ...{ stored, batches, asked, stopping, servers },
      known: () => states.before('b.test', join.eventId, stopping.signal),
      before: (event: RoomEvent) => states.beforeMissing('gone.test', event),
    };
  }

  const byId = new Map([create, founder, open, topic, ...firsts, ...seconds].map((event) => [event.eventId, event]));
  const others = new Map<string, RoomEvent>();
  function buildAgain(pdu: object): RoomEvent {
    const { origin_server_ts: at } = pdu as { origin_server_ts: number };
    return [...byId.values(), ...others.values()].find(({ originServerTs }) => originServerTs === at)!;
  }

  const state = [create, founder, open, ...seconds];

  it('is stored a few events at a time, each behind those that allow it', async () => {
    const { batches, asked, stored, known } = storing({ state, chain: [create, founder, open, ...firsts] });
    const given = await known();
    expect(asked).toEqual(['state_ids', 'state']);
    expect(Math.max(...batches.map((batch) => batch.length))).toBeLessThanOrEqual(25);
    expect(batches.flat()).toHaveLength(firsts.length + seconds.length);
    expect(stored.size).toBe(5 + firsts.length + seconds.length);
    // What the event follows upon is part of it.
    expect(new Set(given?.state.values())).toEqual(new Set([...state, topic].map(({ eventId }) => eventId)));
    expect(given?.servers).toEqual(new Set(['b.test', 's0.test', 's1.test', 's2.test']));
  });

  it('is told by another server of the room where who sent an event that is not stored yet does not help', async () => {
    const { batches, servers, before } = storing({ state, chain: [create, founder, open, ...firsts] });
    const late = make('m.room.name', '', { name: 'late' }, [create, founder]);
    const given = await before(late);
    expect(servers).toEqual(['gone.test', 'b.test']);
    expect(new Set(given?.state.values())).toEqual(new Set(state.map(({ eventId }) => eventId)));
    expect(batches.flat()).toHaveLength(firsts.length + seconds.length);
    expect(Math.max(...batches.map((batch) => batch.length))).toBeLessThanOrEqual(25);
    // Nobody gives a state with a beginning upon which the event does not rest.
    const stray = make('m.room.name', '', { name: 'stray' }, [founder]);
    if (!rules.createEventImplied) expect(await before(stray)).toBeUndefined();
  });

  it('lacks what is not given', async () => {
    const { known } = storing({ state, chain: [create, founder, open, ...firsts.slice(1)] });
    expect((await known())?.state.size).toBe(state.length);
  });

  it('is not told where the server stops meanwhile; what is stored stays', async () => {
    const { batches, stopping, known } = storing({ state, chain: firsts });
    const { push } = batches;
    batches.push = (...some) => {
      stopping.abort();
      return push.apply(batches, some);
    };
    expect(await known()).toBeUndefined();
    expect(batches).toHaveLength(1);
  });

  it('is given up where the server stops while another one does not answer', async () => {
    const rest = [create, founder, open, ...firsts.slice(0, 9)];
    for (const answer of [
      { state: [], chain: [], isSilent: true },
      { state: rest, chain: [] },
    ]) {
      const { stopping, known } = storing(answer);
      const given = known();
      setTimeout(() => stopping.abort(), 5);
      expect(await given).toBeUndefined();
    }
  });

  const another = events.create({ other: true });
  others.set(another.eventId, another);
  const twice = { state: [...state, another], chain: firsts };
  if (rules.createEventImplied)
    it('lacks a create event of another room', async () => {
      expect(new Set((await storing(twice).known())?.state.values())).not.toContain(another.eventId);
    });
  it.each<[string, Parameters<typeof storing>[0]]>([
    ...(rules.createEventImplied ? [] : [['two create events', twice] as [string, typeof twice]]),
    ['two events for one piece of state', { state: [...state, firsts[0]!], chain: firsts }],
    ['no create event', { state: state.slice(1), chain: firsts }],
    ['no JSON', { state, chain: firsts, text: '{"pdus":[{]}' }],
    ['no list', { state, chain: firsts, text: '{"pdus":[]}' }],
    ['no list of ids', { state, chain: firsts, ids: { pdu_ids: [] } }],
    [
      'an id that is far too long',
      { state, chain: firsts, ids: { pdu_ids: ['$'.repeat(70_000)], auth_chain_ids: [] } },
    ],
    ['an event that is far too long', { state, chain: firsts, text: `{"pdus":["${'x'.repeat(600_000)}"]}` }],
  ])('is not believed: %s', async (_, answer) => {
    await expect(storing(answer).known()).rejects.toThrow(WrongAnswer);
  });
});
