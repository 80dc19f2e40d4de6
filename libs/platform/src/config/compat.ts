import type { Draft } from './draft.js';
/** x */
export function applyOldForms(_draft: Draft): void {}
