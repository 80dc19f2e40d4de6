import { EphemeralHooks, type PresenceReader, type PresenceState } from '@rookery/ephemeral';
import { BackgroundTasks, Config, Lifecycle, Metrics, SilentLogger } from '@rookery/platform';
import { eventually, FakeClock } from '@rookery/testing';
import type { FederationSender } from '../sender/federation-sender.js';
import type { RemoteAudience } from '../sender/remote-audience.js';
import { OutgoingPresence } from './outgoing-presence.js';

const minuteMs = 60_000;
const stateOf = (userId: string): PresenceState =>
  ({ userId, state: 'online', lastActiveTs: 0 }) as unknown as PresenceState;

describe('who is there, as other servers are told', () => {
  const make = (names: readonly string[] = []) => {
    const [clock, logger] = [new FakeClock(), new SilentLogger()];
    const [hooks, lifecycle] = [new EphemeralHooks(logger), new Lifecycle(clock, logger)];
    let remind = (): Promise<void> => Promise.resolve();
    const tasks = {
      add: ({ run }: { run: () => Promise<void> }) => {
        remind = run;
        return { start: () => undefined };
      },
    };
    const servers = new Map([
      ['@a:home.test', new Set(['far.test'])],
      ['@lone:home.test', new Set<string>()],
      ...names.map((userId) => [userId, new Set(['far.test'])] as const),
    ]);
    const asked: number[] = [];
    const meanwhile: (() => void)[] = [];
    const audience = {
      hasAny: true,
      ofUsers: async (userIds: readonly string[]) => {
        asked.push(userIds.length);
        meanwhile.pop()?.();
        return servers;
      },
    };
    const presence = { localPresent: () => [...servers.keys()].map(stateOf), remindElsewhere: async () => undefined };
    const told: string[] = [];
    const sender = {
      sendPresence: (to: readonly string[], states: readonly PresenceState[]) =>
        void told.push(
          ...states.map(({ userId, state }) => `${to.join()} ${userId}${state === 'online' ? '' : ` ${state}`}`),
        ),
    };
    const out = new OutgoingPresence(
      ...([clock, Config.fromObject({ server_name: 'home.test' }), hooks] as const),
      ...([presence as unknown as PresenceReader, audience as unknown as RemoteAudience] as const),
      ...([sender as unknown as FederationSender, tasks as unknown as BackgroundTasks] as const),
      ...([new Metrics('home.test'), lifecycle, logger] as const),
    );
    out.onModuleInit();
    const after = async (minutes: number): Promise<string[]> => {
      await clock.advance(minutes * minuteMs);
      await remind();
      return told.splice(0);
    };
    return { after, asked, meanwhile, hooks, sent: told };
  };

  it('is told again before they take them for gone, also of those who were told of before a restart', async () => {
    const { after } = make();
    expect(await after(5)).toEqual([]);
    expect(await after(16)).toEqual(['far.test @a:home.test']);
    expect(await after(5)).toEqual([]);
    expect(await after(16)).toEqual(['far.test @a:home.test']);
  });

  it('is told of some at a time, and of nobody who has gone meanwhile', async () => {
    const names = Array.from({ length: 118 }, (_, n) => `@u${n}:home.test`);
    const { after, asked, meanwhile, hooks, sent } = make(names);
    expect(await after(5)).toEqual([]);
    // While the first are on their way.
    meanwhile.push(() => hooks.presenceChanged([{ ...stateOf('@u117:home.test'), state: 'offline' }]));
    const told = await after(16);
    expect(Math.max(...asked)).toBe(50);
    expect(told.filter((one) => one.includes('@u117:'))).toEqual(['far.test @u117:home.test offline']);
    expect(told).toHaveLength(119);
    expect(new Set(told).size).toBe(119);
    // Also where it is no reminder.
    meanwhile.push(() => hooks.presenceChanged([stateOf('@u117:home.test')]));
    hooks.presenceChanged(names.map((userId) => ({ ...stateOf(userId), state: 'unavailable' as const })));
    await eventually(() => sent.length >= 118);
    expect(sent.filter((one) => one.includes('@u117:'))).toEqual(['far.test @u117:home.test']);
    expect(sent).toHaveLength(118);
  });
});
