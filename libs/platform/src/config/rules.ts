import type { Draft } from './draft.js';
/** x */
export function checkRules(_draft: Draft, _unread: boolean): void {}
