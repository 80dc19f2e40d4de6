import type { ModuleEvent, RoomStateView } from '@rookery/module-api';
import { Subject } from 'rxjs';
import { MatrixEvents, type NewEvent } from './events.js';

const state = {} as RoomStateView;
const eventOf = (type: string, n: number): ModuleEvent => ({ type, eventId: `$${n}` }) as ModuleEvent;
const settled = async (promise: Promise<unknown>): Promise<boolean> => {
  let isSettled = false;
  void promise.then(
    () => (isSettled = true),
    () => (isSettled = true),
  );
  for (let i = 0; i < 20; i++) await Promise.resolve();
  return isSettled;
};

/** A stream whose events are handled when the test says so. */
function slow(options: { concurrency?: number; buffer?: number; types?: string[] }) {
  const errors: unknown[] = [];
  const events = new MatrixEvents({ error: (_, fields) => errors.push(fields?.['err']) });
  const running: { id: string; finish: Subject<string> }[] = [];
  const emitted: string[] = [];
  const subscription = events
    .handle(({ event }: NewEvent) => {
      const finish = new Subject<string>();
      running.push({ id: event.eventId, finish });
      return finish;
    }, options)
    .subscribe((value) => emitted.push(value));
  const tell = (n: number, type = 'm.a'): Promise<void> => events.tell(eventOf(type, n), state);
  return { events, running, emitted, errors, tell, subscription };
}

describe('events as streams', () => {
  it('hold the server back until an event was handled', async () => {
    const { running, emitted, tell } = slow({});
    const [first, second] = [tell(1), tell(2)];
    expect(running.map(({ id }) => id)).toEqual(['$1']);
    expect(await settled(first)).toBe(false);
    running[0]!.finish.next('one');
    running[0]!.finish.complete();
    expect(await settled(first)).toBe(true);
    expect(emitted).toEqual(['one']);
    expect(running.map(({ id }) => id)).toEqual(['$1', '$2']);
    expect(await settled(second)).toBe(false);
  });

  it('handle as many at once as they may, and let no more wait in memory than they should', async () => {
    const { running, tell } = slow({ concurrency: 2, buffer: 1 });
    const told = [tell(1), tell(2), tell(3), tell(4)];
    expect(running.map(({ id }) => id)).toEqual(['$1', '$2']);
    expect(await Promise.all(told.map(settled))).toEqual([true, true, true, false]);
    running[1]!.finish.complete();
    expect(running.map(({ id }) => id)).toEqual(['$1', '$2', '$3']);
    expect(await settled(told[3]!)).toBe(true);
  });

  it('are for the types that were asked for', async () => {
    const { running, tell } = slow({ types: ['m.b'] });
    await tell(1, 'm.a');
    void tell(2, 'm.b');
    expect(running.map(({ id }) => id)).toEqual(['$2']);
  });

  it('tell the server of what went wrong, and go on', async () => {
    const { running, tell, errors } = slow({});
    const [first, second] = [tell(1), tell(2)];
    running[0]!.finish.error(new Error('no'));
    await expect(first).rejects.toThrow('no');
    running[1]!.finish.complete();
    await second;
    expect(errors).toEqual([]);
  });

  it('write themselves of what went wrong after the server went on', async () => {
    const { running, tell, errors } = slow({ buffer: 5 });
    await tell(1);
    running[0]!.finish.error(new Error('no'));
    expect(errors).toEqual([new Error('no')]);
  });

  it('let the server go when they end', async () => {
    const { running, tell, subscription } = slow({});
    const told = [tell(1), tell(2)];
    subscription.unsubscribe();
    await Promise.all(told);
    expect(running.map(({ id, finish }) => [id, finish.observed])).toEqual([['$1', false]]);
    await tell(3);
  });

  it('refuse what is no number', () => {
    const events = new MatrixEvents({ error() {} });
    expect(() => events.handle(() => [], { concurrency: 0 })).toThrow('concurrency is a whole number');
    expect(() => events.handle(() => [], { buffer: -1 })).toThrow('buffer is a whole number');
  });
});
