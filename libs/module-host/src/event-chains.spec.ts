import { SilentLogger } from '@rookery/platform';
import { FakeClock } from '@rookery/testing';
import { EventChains } from './event-chains.js';

const event = (n: number): { eventId: string; roomId: string } => ({ eventId: `$${n}`, roomId: '!r' });

describe('EventChains', () => {
  it('counts an event that is told before its sender knows which it is', async () => {
    const chains = new EventChains(new SilentLogger(), new FakeClock());
    let sent = 0;
    const answer = async (): Promise<void> => {
      const next = event(++sent);
      let told: Promise<void> = Promise.resolve();
      await chains.sending('loop', async () => {
        // As it is stored, others hear of it at once.
        told = chains.telling(next.eventId, answer);
        await new Promise((resolve) => setImmediate(resolve));
        return next;
      });
      await told;
    };
    await expect(answer()).rejects.toMatchObject({ status: 429 });
    expect(sent).toBe(21);
  });

  it('tells after a while where a sender waits for who is told', async () => {
    const clock = new FakeClock();
    const chains = new EventChains(new SilentLogger(), clock);
    let told = false;
    const telling = Promise.withResolvers<void>();
    const sending = chains.sending('waits', async () => {
      await telling.promise;
      return event(1);
    });
    const done = chains.telling('$other', async () => {
      told = true;
      telling.resolve();
    });
    await clock.advance(999);
    expect(told).toBe(false);
    await clock.advance(1);
    await done;
    expect(await sending).toEqual(event(1));
  });
});
