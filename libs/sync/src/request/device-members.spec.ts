import { Config, type Logger, SilentLogger } from '@rookery/platform';
import { Rpc } from '@rookery/replication';
import { MemoryProcesses } from '@rookery/testing';
import { LazyMemberMemories } from './device-members.js';
import { emptyToken, formatSyncToken, parseSyncToken, type SyncToken } from './sync-token.js';

const lazy = { lazyLoadMembers: true, includeRedundantMembers: false };
const logger: Logger = new SilentLogger();
const at = (events: number, home?: number): SyncToken => ({ ...emptyToken, events, home });
const room = (wanted: Record<string, string>, anew = false) => [
  { roomId: '!room', wanted: new Map(Object.entries(wanted)), anew },
];

const config = Config.fromObject({ server_name: 'x' });

describe('members that a device was sent by one of several processes', () => {
  let processes: LazyMemberMemories[];
  let network: MemoryProcesses;

  beforeEach(() => {
    network = new MemoryProcesses();
    processes = ['one', 'two'].map((name) => new LazyMemberMemories(network.connect(name).rpc, logger, config));
  });

  /** One answer: what was sent, and where the device stands afterwards. */
  const answer = async (index: number, since: SyncToken | undefined, wanted: Record<string, string>, upTo: number) => {
    const members = processes[index]!.of('device', since && { answer: since.events, home: since.home }, lazy);
    await members.begin();
    const taken = await members.take(room(wanted, since === undefined), upTo);
    return { sent: Object.fromEntries(taken.get('!room') ?? []), next: at(upTo, members.home) };
  };

  it('are sent once, whichever process is asked', async () => {
    const first = await answer(0, undefined, { '@a': '$a' }, 5);
    expect(first).toEqual({ sent: { '@a': '$a' }, next: at(5, 1) });
    const second = await answer(1, first.next, { '@a': '$a', '@b': '$b' }, 7);
    expect(second).toEqual({ sent: { '@b': '$b' }, next: at(7, 1) });
    const third = await answer(0, second.next, { '@a': '$a', '@b': '$b' }, 9);
    expect(third.sent).toEqual({});
    const fourth = await answer(1, third.next, { '@a': '$renamed', '@b': '$b' }, 11);
    expect(fourth.sent).toEqual({ '@a': '$renamed' });
  });

  it('are sent again where the answer did not arrive, and where the device begins anew', async () => {
    const first = await answer(0, undefined, { '@a': '$a' }, 5);
    await answer(1, first.next, { '@b': '$b' }, 7);
    expect((await answer(1, first.next, { '@a': '$a', '@b': '$b' }, 8)).sent).toEqual({ '@b': '$b' });
    const anew = await answer(1, undefined, { '@a': '$a' }, 9);
    expect(anew).toEqual({ sent: { '@a': '$a' }, next: at(9, 2) });
  });

  it('are sent again where the process is gone that remembered them, and remembered by another', async () => {
    const second = await answer(1, at(5, 77), { '@a': '$a' }, 7);
    expect(second).toEqual({ sent: { '@a': '$a' }, next: at(7, 2) });
    expect((await answer(0, second.next, { '@a': '$a' }, 9)).sent).toEqual({});
  });

  it('are asked of nobody by a device that wants all of them', async () => {
    class NoRpc extends Rpc {
      override get processNumber(): number {
        return 3;
      }
      handle(): void {}
      call(): Promise<never> {
        throw new Error('Nobody was to be asked');
      }
      callOthers(): Promise<never> {
        throw new Error('Nobody was to be asked');
      }
    }
    const memories = new LazyMemberMemories(new NoRpc(), logger, config);
    const members = memories.of('device', { answer: 5, home: 1 }, { ...lazy, includeRedundantMembers: true });
    await members.begin();
    expect(await members.take(room({ '@a': '$a' }), 7)).toEqual(new Map([['!room', new Map([['@a', '$a']])]]));
    expect(members.home).toBe(1);
  });

  it('are known by a token that older releases read, too', () => {
    // Sixteen numbers: a release with more streams, or fewer, reads the same in it.
    const zeros = Array.from({ length: 14 }, () => '0').join('_');
    expect(formatSyncToken(at(5, 12))).toBe(`s5_${zeros}_12`);
    expect(parseSyncToken(`s5_${zeros}_12`)).toEqual(at(5, 12));
    expect(parseSyncToken(formatSyncToken(at(5)))).toEqual({ ...emptyToken, events: 5 });
  });
});
