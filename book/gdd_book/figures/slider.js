// shows the frame that slider or switches stand for, and its words; without it the first frame stays, and no controls
(box => {
const frames = JSON.parse(box.querySelector('script').textContent), play = box.querySelector('button');
const inputs = [...box.querySelectorAll('input')], [range] = inputs;
let timer;
const show = () => {
  const at = play ? +range.value : inputs.reduce((sum, one, bit) => sum + (one.checked << bit), 0);
  box.querySelector('img').src = 'data:image/png;base64,' + frames[at][0];
  box.querySelector('output').value = frames[at][1];
  if (play) range.setAttribute('aria-valuetext', frames[at][1]);
  else box.querySelectorAll('span').forEach((name, bit) => { name.textContent = frames[at][2][bit]; });
};
const stop = () => { timer = clearInterval(timer); play.textContent = 'Play'; };
box.addEventListener('input', () => { if (timer) stop(); show(); });
if (play) play.onclick = () => {
  if (timer) return stop();
  play.textContent = 'Stop';
  if (range.value == range.max) range.value = 0; else range.stepUp();
  show();
  timer = setInterval(() => { if (range.value == range.max) return stop(); range.stepUp(); show(); }, 800);
};
box.querySelector('.controls').hidden = false;
})(document.currentScript.parentElement)
