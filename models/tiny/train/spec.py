"""Reference EAGLE-3 speculative decoding (chain + tree), fault injection, signals."""
import torch, time, json, math, os, sys, random
from safetensors.torch import load_file
from tinylm import *

def cfg_from(tdir, ddir):
    t = json.load(open(tdir + '/config.json')); d = json.load(open(ddir + '/config.json'))
    return Cfg(vocab=t['vocab_size'], hidden=t['hidden_size'], inter=t['intermediate_size'], layers=t['num_hidden_layers'], heads=t['num_attention_heads'],
               kv=t['num_key_value_heads'], hd=t['head_dim'], eps=t['rms_norm_eps'], theta=t['rope_theta'], max_pos=t['max_position_embeddings'], draft_vocab=d['draft_vocab_size'])

HERE = os.path.dirname(os.path.abspath(__file__)); PAIR = os.path.dirname(HERE)
def load(tdir=PAIR + '/target', ddir=PAIR + '/draft', dtype=torch.float32):
    c = cfg_from(tdir, ddir)
    t = Target(c); t.load_state_dict({k: v.float() for k, v in load_file(tdir + '/model.safetensors').items()})
    d = Draft(c); sd = load_file(ddir + '/model.safetensors'); sd = {k: (v.float() if v.is_floating_point() else v) for k, v in sd.items()}
    if 'embed_tokens.weight' not in sd: sd['embed_tokens.weight'] = t.model.embed_tokens.weight.data
    d.load_state_dict(sd)
    return c, t.eval().to(dtype), d.eval().to(dtype)

class Spec:
    """fault switches are plain attributes; healthy by default"""
    def __init__(s, c, t, d, K=4):
        s.c, s.t, s.d, s.K = c, t, d, K
        s.aux = default_aux(c.layers); s.order = None; s.map = d.d2t + torch.arange(c.draft_vocab)
        s.single = None            # 'post' | 'pre' -> last layer only, fc bypassed
        s.pos_all = 0; s.pos_dec = 0; s.pos_stuck = False; s.pos_first_only = False
        s.no_prompt = False; s.stale = 0; s.invoke = True; s.carry_norm = False; s.no_shift = False
        s.swap_cat = False; s.no_hidden_norm = False; s.res_norm = False; s.keep_stale_kv = False
        s.carry_zero = False; s.carry_target = False; s.extend_last_only = False; s.reuse_prompt_h = False; s.noise = 0.
        s.full_head = None; s.aux_scale = 1.0; s.theta = None; s.h_shift = 0
        s.rec = {k: [] for k in ('fin', 'fout', 'top1', 'ent', 'top1d', 'entd', 'drafts', 'chunks', 'carry', 'fpos', 'l0')}; s.rid = -1
    # -- target
    def tforward(s, ids, cache, mask=None, pos=None):
        want = set(s.aux) | {s.c.layers}
        lg, outs, h = s.t(torch.tensor([ids]) if isinstance(ids, list) else ids, cache=cache, aux=want, mask=mask, pos=pos)
        if s.single == 'post': f = h
        elif s.single == 'pre': f = outs[s.c.layers]
        else:
            ch = [outs[i] for i in s.aux]
            if s.order: ch = [ch[i] for i in s.order]
            f = torch.cat(ch, -1) * s.aux_scale
        return lg[0], f[0]
    def fc(s, f):
        if f.shape[-1] != s.c.hidden:
            o = s.d.fc(f)
        else: o = f                      # SGLang's shape check: equal width -> fc silently bypassed
        s.rec['fin'].append(f); s.rec['fout'].append(o)
        return o
    def dlayer(s, ids, h, pos, cache, mask=None):
        d = s.d; L = d.midlayer; e = d.embed_tokens(ids)[None]; h = h[None]
        hn = h if s.no_hidden_norm else L.hidden_norm(h); en = L.input_layernorm(e)
        x = torch.cat([hn, en] if s.swap_cat else [en, hn], -1)
        cos, sin = (s.d.cos, s.d.sin) if s.theta is None else s._tab
        res = hn if s.res_norm else h
        x = res + L.self_attn(x, cos[pos], sin[pos], cache, mask)
        x = x + L.mlp(L.post_attention_layernorm(x))
        n = d.norm(x)
        lg = (s.full_head(n) if s.full_head is not None else d.lm_head(n))[0]
        return lg, (n if s.carry_norm else x)[0]
    def tomap(s, i):
        if s.map is None: return int(i)
        return int(s.map[min(int(i), len(s.map)-1)]) % s.c.vocab
    def note(s, lg, dec):
        p = torch.softmax(lg.float(), -1)
        s.rec['top1d' if dec else 'top1'].append(p.max().item()); s.rec['entd' if dec else 'ent'].append(-(p * (p + 1e-20).log()).sum().item())
    @torch.no_grad()
    def generate(s, prompt, max_new=64, eos=2, temp=0.0):
        c = s.c; K = s.K; s.rid += 1
        if s.theta is not None: s._tab = rope_tab(c, c.max_pos, s.theta)
        tc = [[] for _ in range(c.layers)]; dc = []
        lg, f = s.tforward(list(prompt), tc)
        n = len(prompt); out = list(prompt) + [int(lg[-1].argmax())]
        feat = f; fstart = 0                 # features for positions fstart..fstart+len-1
        prevfeat = f
        steps = []                           # accepted count per verify step
        matches = []                         # per step: list of match flags until first miss
        if s.no_prompt: feat = f[-1:]; fstart = n - 1
        dpos0 = 0
        while len(out) - len(prompt) < max_new and out[-1] != eos:
            n = len(out) - 1                 # committed tokens with target KV
            if not s.invoke:
                lg, f = s.tforward([out[-1]], tc); out.append(int(lg[-1].argmax())); steps.append(0); matches.append([]); feat = f; fstart = n; continue
            # ---- draft extend: pairs (feat_t, x_{t+1}) t=fstart..n-1
            ft = feat
            if s.stale: ft = torch.cat([prevfeat[-s.stale:], ft])[:len(ft)] if len(prevfeat) >= s.stale else ft
            if s.noise: ft = ft + s.noise * ft.std() * torch.randn_like(ft)
            h = s.fc(ft)
            lo = fstart; s.rec['fpos'].append((s.rid, lo))
            ids = torch.tensor(out[lo:n] if s.no_shift else out[lo+1:n+1])
            pos = torch.arange(lo, n) + s.pos_all
            if s.extend_last_only and lo > 0: h, ids, pos = h[-1:], ids[-1:], pos[-1:]
            prevfeat = torch.cat([prevfeat, feat])[-8:]
            lgd, x = s.dlayer(ids, h, pos, dc)
            keep = dc[0].shape[2]
            s.note(lgd[-1], 0); s.rec['l0'].append(((s.rid, n), lgd[-1]))
            tok = s.tomap(lgd[-1].argmax()); dr = [tok]; carry = x[-1:]
            for j in range(1, K):
                if s.carry_zero: carry = torch.zeros_like(carry)
                if s.carry_target: carry = h[-1:]
                p = n - 1 + j + s.pos_all + s.pos_dec
                if s.pos_stuck: p = n - 1
                s.rec['carry'].append(carry)
                lgd, x = s.dlayer(torch.tensor([tok]), carry, torch.tensor([p]), dc)
                carry = x[-1:]; s.note(lgd[-1], 1); tok = s.tomap(lgd[-1].argmax()); dr.append(tok)
            if not s.keep_stale_kv: dc[:] = [dc[0][:, :, :keep], dc[1][:, :, :keep]]
            # ---- verify
            lg, f = s.tforward([out[-1]] + dr, tc)
            pred = lg.argmax(-1).tolist(); a = 0; fl = []
            while a < K:
                ok = pred[a] == dr[a]; fl.append(ok)
                if not ok: break
                a += 1
            s.rec['drafts'].append((out[-1], out[-2], dr, pred))
            new = dr[:a] + [pred[a]]
            if eos in new: new = new[:new.index(eos)+1]
            for l in tc: l[:] = [l[0][:, :, :n+a+1], l[1][:, :, :n+a+1]]
            feat = f[:a+1]; fstart = n
            out += new; steps.append(a); matches.append(fl)
            if len(out) - 1 != n + a + 1: break      # eos inside
        return out[len(prompt):], steps, matches

@torch.no_grad()
def plain(t, prompt, max_new=64, eos=2):
    cache = [[] for _ in range(t.c.layers)]; lg = t(torch.tensor([list(prompt)]), cache=cache); o = [int(lg[0, -1].argmax())]
    while len(o) < max_new and o[-1] != eos:
        lg = t(torch.tensor([[o[-1]]]), cache=cache); o.append(int(lg[0, -1].argmax()))
    return o

def stat(x):
    return dict(mean=x.mean().item(), std=x.std().item(), norm=x.norm(dim=-1).mean().item())

def summarize(s, runs, K):
    st = [a for _, x, _ in runs for a in x]; ml = [m for _, _, y in runs for m in y]
    tot = len(st); r = {'steps': tot, 'mal': sum(st)/max(tot, 1) + 1}
    r['pos'] = [sum(1 for a in st if a > j)/max(tot, 1) for j in range(K)]
    r['cond'] = []
    for j in range(K):
        reach = [m for m in ml if len(m) > j]; r['cond'].append(sum(m[j] for m in reach)/len(reach) if reach else float('nan'))
    if s.rec['fin']:
        fi = torch.cat(s.rec['fin']); fo = torch.cat(s.rec['fout']); r['fin'] = stat(fi); r['fout'] = stat(fo)
        r['chunk'] = [c.norm(dim=-1).mean().item() for c in fi.chunk(3, -1)] if fi.shape[-1] % 3 == 0 else [fi.norm(dim=-1).mean().item()]
    if s.rec['carry']: r['carry_norm'] = torch.cat(s.rec['carry']).norm(dim=-1).mean().item()
    for k in ('top1', 'ent', 'top1d', 'entd'): r[k] = sum(s.rec[k])/len(s.rec[k]) if s.rec[k] else float('nan')
    D = s.rec['drafts']
    if D:
        # offset diagnostics: does d1 equal the token already known (lag), or what the target says one later (lead)?
        r['lag'] = sum(dr[0] == last for last, _, dr, _ in D)/len(D)
        r['lag2'] = sum(dr[0] == prev for _, prev, dr, _ in D)/len(D)
        r['lead'] = sum(dr[0] == pred[1] for _, _, dr, pred in D)/len(D)
        r['uniq'] = len({tuple(dr) for _, _, dr, _ in D})/len(D)
        r['uniq1'] = len({dr[0] for _, _, dr, _ in D})/len(D)
    r['calib'] = (r['top1'] - r['pos'][0]) if D else float('nan')
    return r

class TreeSpec(Spec):
    """EAGLE-2/3 dynamic tree, SGLang-like: topk beams per level, N best nodes by cumulative prob verified in one pass."""
    def __init__(s, c, t, d, K=4, topk=4, N=16): super().__init__(c, t, d, K); s.topk, s.N = topk, N
    @torch.no_grad()
    def generate(s, prompt, max_new=64, eos=2):
        c, K, kk = s.c, s.K, s.topk
        tc = [[] for _ in range(c.layers)]; dc = []
        lg, f = s.tforward(list(prompt), tc); out = list(prompt) + [int(lg[-1].argmax())]
        feat, fstart = f, 0; steps, matches = [], []
        while len(out) - len(prompt) < max_new and out[-1] != eos:
            n = len(out) - 1
            lgd, x = s.dlayer(torch.tensor(out[fstart+1:n+1]), s.fc(feat), torch.arange(fstart, n), dc)
            keep = dc[0].shape[2]; s.note(lgd[-1], 0)
            nodes = []                                  # (token, parent, score, depth)
            p, i = torch.softmax(lgd[-1], -1).topk(kk)
            for a, b in zip(p.tolist(), i.tolist()): nodes.append((s.tomap(b), -1, a, 1))
            beam = list(range(kk)); carry = {j: x[-1] for j in beam}; slot = {}
            for lev in range(1, K):
                base = dc[0].shape[2]
                for r, b in enumerate(beam): slot[b] = base + r
                m = torch.zeros(len(beam), base + len(beam), dtype=torch.bool); m[:, :keep] = True
                for r, b in enumerate(beam):
                    q = b
                    while q >= 0: m[r, slot[q]] = True; q = nodes[q][1]
                lgd, x = s.dlayer(torch.tensor([nodes[b][0] for b in beam]), torch.stack([carry[b] for b in beam]), torch.full((len(beam),), n - 1 + lev), dc, m[None, None])
                P, I = torch.softmax(lgd, -1).topk(kk, -1); cand = []
                for r, b in enumerate(beam):
                    for a, t_ in zip(P[r].tolist(), I[r].tolist()):
                        nodes.append((s.tomap(t_), b, nodes[b][2] * a, lev + 1)); cand.append((nodes[-1][2], len(nodes) - 1)); carry[len(nodes)-1] = x[r]
                beam = [j for _, j in sorted(cand, reverse=True)[:kk]]
            dc[:] = [dc[0][:, :, :keep], dc[1][:, :, :keep]]
            sel = sorted(sorted(range(len(nodes)), key=lambda j: (-nodes[j][2], j))[:s.N]); ix = {j: r + 1 for r, j in enumerate(sel)}
            T = len(sel) + 1; m = torch.zeros(T, n + T, dtype=torch.bool); m[:, :n + 1] = True
            pos = [n]
            for r, j in enumerate(sel):
                q = j
                while q >= 0: m[r + 1, n + ix[q]] = True; q = nodes[q][1]
                pos.append(n + nodes[j][3])
            lg, f = s.tforward([out[-1]] + [nodes[j][0] for j in sel], tc, mask=m[None, None], pos=torch.tensor(pos))
            pred = lg.argmax(-1).tolist(); cur, path, new = -1, [0], []
            while True:
                want = pred[path[-1]]; nx = [j for j in sel if nodes[j][1] == cur and nodes[j][0] == want]
                new.append(want)
                if not nx: break
                cur = nx[0]; path.append(ix[cur])
            a = len(path) - 1; matches.append([True]*a + ([False] if a < K else []))
            g = torch.tensor(list(range(n)) + [n + r for r in path])
            for l in tc: l[:] = [l[0][:, :, g], l[1][:, :, g]]
            feat = f[torch.tensor(path)]; fstart = n
            if eos in new: new = new[:new.index(eos)+1]
            out += new; steps.append(a)
            if len(out) - 1 != n + a + 1: break
        return out[len(prompt):], steps, matches

def index(s):
    """(run, position) -> fc input / fc output, and (run, context length) -> step-0 draft logits.
    Verification is lossless, so every fault sees the SAME token sequence: these are comparable one to one."""
    fi, fo = {}, {}
    for (r, lo), a, b in zip(s.rec['fpos'], s.rec['fin'], s.rec['fout']):
        for k in range(len(a)): fi[r, lo + k] = a[k]; fo[r, lo + k] = b[k]
    return fi, fo, dict(s.rec['l0'])

def versus(s, ref):
    A, B = index(s), ref; r = {}
    for nm, x, y in zip(('dfin', 'dfout'), A, B):
        ks = [k for k in x if k in y and x[k].shape == y[k].shape]
        if not ks: r[nm] = None; r[nm + '_cos'] = None; continue
        X = torch.stack([x[k] for k in ks]); Y = torch.stack([y[k] for k in ks])
        r[nm] = ((X - Y).norm(dim=-1) / Y.norm(dim=-1)).mean().item(); r[nm + '_cos'] = F.cosine_similarity(X, Y, dim=-1).mean().item()
    ks = [k for k in A[2] if k in B[2] and A[2][k].shape == B[2][k].shape]
    if ks:
        X = torch.stack([A[2][k] for k in ks]); Y = torch.stack([B[2][k] for k in ks]); lx, ly = X.log_softmax(-1), Y.log_softmax(-1)
        r['kl0'] = (ly.exp() * (ly - lx)).sum(-1).mean().item(); r['agree0'] = (X.argmax(-1) == Y.argmax(-1)).float().mean().item()
    else: r['kl0'] = r['agree0'] = None
    return r
