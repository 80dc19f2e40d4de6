/** Device lists, to-device messages, keys, cross-signing, key backup. */
export {};
