/**
 * Whether state of a type may be missing from a room that is known in part (MSC3902): members, and what neither the specification nor
 * this server knows, so that nothing of it decides about an event.
 */
export const mayComeLater = (type: string): boolean =>
  type === 'm.room.member' || !(type.startsWith('m.') || type.startsWith('org.matrix.'));
