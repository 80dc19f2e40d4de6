import { joinedOutcome, type ReloadOutcome } from './reload-outcome.js';

const took = (left: readonly string[] = []): ReloadOutcome => ({
  report: { changed: ['log_level'], modules: { added: ['one'], changed: [], removed: [] }, left },
});

describe('what became of a reload in several processes', () => {
  it('is told once, with what any of them left', () => {
    expect(joinedOutcome([took(), took(['a certificate'])])).toEqual(took(['a certificate']));
    expect(joinedOutcome([])).toMatchObject({ report: { changed: [], left: [] } });
  });

  it('is a failure where one failed', () => {
    const problem = 'no such file';
    expect(joinedOutcome([{ problem }, { problem }])).toEqual({ problem, partly: false });
    expect(joinedOutcome([took(), { problem }])).toEqual({ problem, partly: true });
  });
});
