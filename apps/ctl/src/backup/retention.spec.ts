import { keptOf } from './retention.js';

const at = (text: string): { id: string; madeAtMs: number } => ({ id: text, madeAtMs: Date.parse(`${text}Z`) });

describe('keptOf', () => {
  const backups = [
    '2026-01-31T03:00',
    '2026-02-01T03:00',
    '2026-02-02T03:00',
    '2026-02-28T03:00',
    '2026-03-01T03:00',
    '2026-03-02T03:00',
    '2026-03-02T15:00',
    '2026-03-03T03:00',
  ].map(at);
  const kept = (retention: object): string[] => [...keptOf(backups.toReversed(), retention)].sort();

  it('keeps the newest, whatever is asked for', () => {
    expect(kept({})).toEqual(['2026-03-03T03:00']);
    expect(keptOf([], { daily: 3 })).toEqual(new Set());
  });

  it('keeps the last of each day, week and month', () => {
    expect(kept({ last: 2 })).toEqual(['2026-03-02T15:00', '2026-03-03T03:00']);
    expect(kept({ daily: 3 })).toEqual(['2026-03-01T03:00', '2026-03-02T15:00', '2026-03-03T03:00']);
    // Weeks begin on Monday: 2 March 2026 is one.
    expect(kept({ weekly: 2 })).toEqual(['2026-03-01T03:00', '2026-03-03T03:00']);
    expect(kept({ monthly: 12 })).toEqual(['2026-01-31T03:00', '2026-02-28T03:00', '2026-03-03T03:00']);
    expect(kept({ daily: 1, weekly: 2, monthly: 2 })).toEqual([
      '2026-02-28T03:00',
      '2026-03-01T03:00',
      '2026-03-03T03:00',
    ]);
  });
});
