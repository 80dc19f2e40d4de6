import { FakeClock, RecordingLogger } from '@rookery/testing';
import { type Statements, Transaction } from './transaction.js';

const minuteMs = 60_000;

it('a transaction that holds up others is reported, once, and is given up after a minute', async () => {
  const [time, logger] = [new FakeClock(), new RecordingLogger()];
  const transaction = new Transaction({} as Statements);
  const hung = transaction.execute(() => new Promise(() => {}), logger, { name: 'slow_one' }, time);
  const outcome = expect(hung).rejects.toThrow('slow_one was given up after 60000 ms');
  await time.advance(minuteMs - 1);
  expect(transaction.ended).toBe(false);
  expect(logger.lines.map((line) => [line.message, line.fields['transaction']])).toEqual([
    ['A transaction is still open; it holds up others', 'slow_one'],
  ]);
  await time.advance(1);
  await outcome;
  expect(transaction.ended).toBe(true);
  expect(time.pendingTimers).toBe(0);
});

it('a transaction without a limit is reported, and goes on', async () => {
  const [time, logger] = [new FakeClock(), new RecordingLogger()];
  let end: (value: string) => void = () => {};
  const answer = new Promise<string>((resolve) => (end = resolve));
  const long = new Transaction({} as Statements).execute(() => answer, logger, { limitMs: Infinity }, time);
  await time.advance(60 * minuteMs);
  expect(logger.lines).toHaveLength(1);
  end('done');
  expect(await long).toBe('done');
});
